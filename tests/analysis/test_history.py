"""The run's curves in bounded memory: fine of late, coarser the longer ago."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.analysis.over_time.history import (
    MERGED,
    POINTS,
    ROWS_PER_LEVEL,
    History,
    SavedHistory,
    Spread,
    row_spread,
    rows_of,
)


def rows(values, *, first=1, every_s=0.1, known=None, ranks=(0, 1, 2)):
    """Rows of one quantity. values: [S, R]."""
    values = np.asarray(values, float)
    count = len(values)
    told = row_spread(values, known, ranks)
    numbers = np.arange(first, first + count)
    return rows_of(numbers * every_s, numbers, [told])


def flat(count, low=1.0, median=2.0, high=3.0):
    return np.repeat([[low, median, high]], count, axis=0)


def history_of(values, *, batch=1000, name="own", **options):
    history = History([name])
    for begin in range(0, len(values), batch):
        history.add(rows(values[begin : begin + batch], first=begin + 1, **options))
    return history


def test_a_long_run_stays_bounded_and_keeps_its_extremes_and_its_order():
    values = flat(100_000)
    values[777, 0], values[50_000, 2] = -5.0, 99.0
    history = history_of(values)
    series = history.series("own")
    assert POINTS / 4 < len(series.seconds) <= POINTS + 2
    assert series.seconds == sorted(series.seconds)
    assert series.seconds[-1] == 10_000
    assert min(series.low) == -5.0
    assert max(series.high) == 99.0
    assert set(series.median) == {2.0}
    assert sum(len(level.rows) for level in history._levels) < 7 * ROWS_PER_LEVEL


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9000), st.lists(st.integers(1, 700), min_size=1, max_size=4), st.integers(0, 99))
def test_however_it_comes_in_it_is_the_same(count, batches, seed):
    values = np.random.default_rng(seed).normal(size=(count, 3))
    at_once, bit_by_bit = history_of(values, batch=count), History(["own"])
    begin = 0
    while begin < count:
        size = batches[begin % len(batches)]
        bit_by_bit.add(rows(values[begin : begin + size], first=begin + 1))
        begin += size
    for span in (None, 5.0, 300.0):
        assert at_once.view("own", span, None, 100) == bit_by_bit.view("own", span, None, 100)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40_000), st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.integers(1, 600))
def test_any_stretch_is_told_whole_and_as_finely_as_it_is_known(count, share, place, points):
    history = history_of(flat(count), batch=40_000)
    whole = count * 0.1
    end = whole * place
    span = max(0.01, whole * share)
    view = history.view("own", span, end, points)
    assert len(view.seconds) <= points + 4
    assert view.seconds == sorted(view.seconds)
    begin = max(end - span, 0.1)
    if begin < end:
        assert view.seconds[0] <= begin + 0.1 * view.merged
        assert view.seconds[-1] >= end - 0.1 * view.merged
        # The finest level that reaches back so far has at least a quarter of its rows from then on, or it is all.
        age = whole - (end - span)
        asked = MERGED * age / 0.1 / ROWS_PER_LEVEL
        assert view.merged <= max(1, MERGED * max(asked, span / 0.1 / points) + MERGED)


def test_the_last_steps_are_told_one_by_one():
    history = history_of(np.arange(300_000.0).reshape(-1, 3))
    view = history.view("own", 50.0, None, 1000)
    assert view.merged == 1
    assert view.steps[1:] == list(range(99_500, 100_001))
    assert view.worst[-1] == 2
    assert (view.first_s, view.last_s) == (pytest.approx(0.1 * MERGED**4, rel=1), 10_000.0)


def test_one_loss_that_is_no_number_stays_visible_however_much_is_merged():
    values = flat(20_000)
    values[1234, 1] = math.nan
    history = history_of(values, name="loss")
    view = history.view("loss", None, None, 50)
    assert sum(map(math.isnan, view.high)) == 1
    assert not any(map(math.isnan, view.low))
    assert view.worst[[math.isnan(high) for high in view.high].index(True)] == 1


def test_steps_without_a_value_do_not_disturb_the_others():
    known = np.zeros((4 * ROWS_PER_LEVEL, 3), bool)
    known[::3] = True
    series = history_of(flat(4 * ROWS_PER_LEVEL), known=known, batch=4 * ROWS_PER_LEVEL).series("own")
    assert {value for value in series.median if value is not None} == {2.0}
    never = history_of(flat(10), known=np.zeros((10, 3), bool), batch=10)
    assert never.recorded == set()
    assert never.series("own").median == [None] * 10


def test_of_those_who_wait_the_one_who_waits_least_is_named_also_when_merged():
    values = flat(5000, 4.0, 0.5, 9.0)
    values[::2] = 0.1, 4.0, 5.0
    history = History(["wait"])
    told = row_spread(values, ranks=(10, 11, 12), low_is_worst=True)
    history.add(rows_of(np.arange(5000.0), np.arange(5000), [told]))
    view = history.view("wait", None, None, 10)
    assert set(told.worst[:2]) == {10, 11}
    assert set(view.worst) == {10}


def test_a_value_that_is_no_number_counts_as_the_largest():
    told = row_spread(np.array([[math.nan, 3.0, 1.0, 2.0]]), ranks=(0, 1, 2, 3))
    assert (told.low[0], told.median[0], told.worst[0]) == (1.0, 2.5, 0)
    assert math.isnan(told.high[0])


def test_ranks_that_told_nothing_are_left_out():
    known = np.array([[True, False, True], [False, False, False]])
    told = row_spread(np.array([[4.0, 9.0, 2.0], [1.0, 1.0, 1.0]]), known, (5, 6, 7))
    assert (told.low[0], told.median[0], told.high[0]) == (2.0, 3.0, 4.0)
    assert told.worst.tolist() == [5, -1]
    assert told.weight.tolist() == [True, False]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4), min_size=1, max_size=40)
)
def test_any_numbers_can_be_told(values):
    history = history_of(np.array(values), ranks=(0, 1, 2, 3))
    view = history.view("own", None, None, 3)
    assert len(view.seconds) == len(view.low) == len(view.high) == len(view.worst) == len(view.steps)


def test_nothing_at_all():
    view = History(["own"]).view("own", None, None, 10)
    assert (view.seconds, view.first_s, view.last_s) == ([], 0.0, 0.0)
    assert History(["own"]).as_of(5.0).series("own").seconds == []


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 30_000), st.floats(0.0, 1.1))
def test_earlier_it_was_what_it_is_said_to_have_been_and_it_goes_on_from_there(count, share):
    values = np.arange(3.0 * count).reshape(-1, 3)
    whole, at = history_of(values, batch=30_000), share * count * 0.1
    cut = whole.as_of(at)
    seconds = cut.series("own").seconds
    assert all(second <= at for second in seconds)
    # What is missing at the end lies in the row that the cut goes through.
    missing = min(at, count * 0.1) - (seconds[-1] if seconds else 0.0)
    assert missing <= 0.1 + max(0.0, MERGED * (count * 0.1 - at) / (ROWS_PER_LEVEL / MERGED))
    cut.add(rows(np.full((50, 3), 7.0), first=count + 1))
    series = cut.series("own")
    assert series.seconds == sorted(series.seconds)
    view = cut.view("own", 2.0, None, 500)
    assert (view.merged, view.median[-1]) == (1, 7.0)


def test_what_is_saved_comes_back():
    history = history_of(np.random.default_rng(0).normal(size=(9_999, 3)))
    again = History.restored(history.saved(), ["own"])
    assert again.view("own", 77.0, None, 300) == history.view("own", 77.0, None, 300)
    assert again.recorded == {"own"}
    less = History.restored(history.saved(ROWS_PER_LEVEL // 4), ["own"]).series("own")
    assert less.seconds[-1] == history.series("own").seconds[-1]
    assert len(less.seconds) > ROWS_PER_LEVEL / 16


@pytest.mark.parametrize(
    "saved",
    [
        SavedHistory(["wait"], []),
        SavedHistory(["own"], [(5, b"short")]),
        SavedHistory(["own"], [(0, rows(flat(3)).tobytes())]),
        SavedHistory(["own"], [(9999, rows(flat(ROWS_PER_LEVEL + 1)).tobytes())]),
    ],
)
def test_what_was_not_saved_so_is_refused(saved):
    with pytest.raises(ValueError, match=r"history|buffer"):
        History.restored(saved, ["own"])


def test_a_spread_of_numbers_past_single_precision_is_no_error():
    told = Spread(*(np.array([value]) for value in (1e300, 1e300, 1e300)), np.array([0]), np.array([True]))
    assert rows_of(np.array([1.0]), np.array([1]), [told])["low"][0, 0] == math.inf
