"""`pytest --quick`: the inner loop of who works here.

It leaves out what starts ranks, supervisors, hubs or terminals (marked e2e or terminal, or given a home for runs), and
tries fewer examples of each property: of those that hypothesis makes, and of those that tests make from a `seed`.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine. The same ones are tried each time, so that what fails is of
# the change that shows it; `--hypothesis-profile hunt` tries others.
settings.register_profile("any machine", deadline=None, derandomize=True, max_examples=30)
EXAMPLES = 10
SEEDS = 2
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.register_profile("hunt", deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="no ranks, other processes or terminals; fewer examples")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick") and config.getoption("timeout_method", None) is None:
        config.option.timeout_method = "signal"  # a thread for each of thousands costs more than many of these tests
    if config.getoption("--hypothesis-profile") is None:
        settings.load_profile("quick" if config.getoption("quick") else "any machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("quick"):
        return
    left_out = {item for item in items if _starts_processes(item) or _is_one_seed_more(item)}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
    for item in items:
        _try_fewer(getattr(item, "obj", None))


def _starts_processes(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("e2e", "terminal"))
    return marked or "home" in getattr(item, "fixturenames", ())


def _is_one_seed_more(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    return parameters is not None and list(parameters.params) == ["seed"] and parameters.indices["seed"] >= SEEDS


def _try_fewer(test: object) -> None:
    """A property that asks for a number of examples by itself does not ask the profile."""
    asked = getattr(test, "_hypothesis_internal_use_settings", None)
    if asked is not None and asked.max_examples > EXAMPLES:
        test._hypothesis_internal_use_settings = settings(asked, max_examples=EXAMPLES)
