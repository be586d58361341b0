"""Test thresholds, and that the page has each of them and each constant with its reason."""

import importlib
import pkgutil
import runpy
from pathlib import Path

import pytest

import ddpmon.analysis
from ddpmon.analysis.threshold import Threshold

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "thresholds.md"


def a(enter, **more):
    return Threshold(enter, of="share of a step", why="A judgement.", **more)


def test_what_reaches_it_makes_it_true_and_what_is_true_stays_so_while_it_keeps_enough():
    one = a(0.4, stay=0.2)
    assert [one.is_reached(value) for value in (0.39, 0.4, 0.41)] == [False, True, True]
    assert [one.is_reached(value, held=True) for value in (0.19, 0.2, 0.3)] == [False, True, True]
    assert (one.number_to_reach(), one.number_to_reach(True)) == (0.4, 0.2)


def test_it_keeps_as_much_as_it_asks_for_unless_it_says_less():
    assert a(3).stay == 3
    assert a(2.0, stay=1.3).stay == 1.3
    assert not a(0.4).is_reached(0.39, held=True)


def test_one_that_is_reached_from_above_stays_true_a_bit_higher():
    one = a(10.0, below=True, stay=20.0)
    assert [one.is_reached(value) for value in (9.9, 10.0, 10.1)] == [True, True, False]
    assert [one.is_reached(value, held=True) for value in (15.0, 20.0, 20.1)] == [True, True, False]


@pytest.mark.parametrize(
    "more",
    [{"stay": 0.5}, {"stay": 0.3, "below": True}],
    ids=["above", "below"],
)
def test_what_keeps_a_thing_true_is_no_more_than_what_makes_it_true(more):
    with pytest.raises(ValueError, match="easier to reach"):
        a(0.4, **more)


@pytest.fixture(scope="module")
def thresholds():
    """Every threshold that a module of the analysis has, wherever it came from, by its identity."""
    names = [each.name for each in pkgutil.walk_packages(ddpmon.analysis.__path__, "ddpmon.analysis.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return {id(value): value for value in values if isinstance(value, Threshold)}.values()


def test_the_page_tells_of_the_thresholds_as_they_are():
    written = runpy.run_path(str(DOCS / "thresholds.py"))["page"]()
    assert PAGE.read_text() == written, "python docs/thresholds.py brings it up to date"


def test_no_threshold_is_left_out_of_the_page(thresholds):
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(thresholds) > 40
    for one in thresholds:
        assert any(f"| {one.of} | " in row and row.endswith(f"| {one.why} |") for row in rows), one
