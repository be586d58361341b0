"""The order in which modules run: with real ranks, then with other processes, then the rest: no long one is last."""

from __future__ import annotations

from collections import Counter

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    with_ranks = Counter(item.path for item in items if item.get_closest_marker("e2e"))
    with_processes = {item.path for item in items if "home" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (-with_ranks[item.path], item.path not in with_processes))
