"""Screens against files: what a screen shows, as text that a review can read.

After a wanted change: DDPMON_GOLDEN=write pytest tests/tui, then look at the diff. A file shows a screen as a whole; a
detail of one is an assertion.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
NARROW, WIDE = (80, 24), (160, 50)
SIZES = (NARROW, WIDE)


def at(*sizes):
    """The test runs at these sizes of the terminal."""
    return pytest.mark.parametrize("size", sizes, ids=lambda size: f"{size[0]}x{size[1]}")


both_sizes = at(*SIZES)


def of_states(sizes: dict[str, Sequence[tuple[int, int]]]):
    """The test runs in these states, each at its sizes of the terminal."""
    cases = [(state, size) for state, some in sizes.items() for size in some]
    return pytest.mark.parametrize(
        ("state", "size"), cases, ids=[f"{state}-{size[0]}x{size[1]}" for state, size in cases]
    )


def check(name: str, text: str, size: tuple[int, int]) -> None:
    """Compare with golden/NAME-SIZE.txt, or write it."""
    path = FOLDER / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("DDPMON_GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert path.exists(), f"{path} is missing: DDPMON_GOLDEN=write pytest tests/tui makes it"
    assert text.splitlines() == path.read_text().splitlines(), f"differs from {path}"
