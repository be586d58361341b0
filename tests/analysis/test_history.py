"""The run's curves in bounded memory."""

import math

import numpy as np

from ddpmon.analysis.history import BUCKETS, History, spread


def test_a_long_run_stays_bounded_and_keeps_its_extremes_and_its_order():
    history = History()
    for i in range(100_000):
        history.add(i * 0.1, -5.0 if i == 777 else 1.0, 2.0, 99.0 if i == 50_000 else 3.0)
    series = history.series()
    assert len(series.seconds) <= BUCKETS
    assert series.seconds == sorted(series.seconds)
    assert series.seconds[-1] > 9_900
    assert min(series.low) == -5.0
    assert max(series.high) == 99.0
    assert set(series.median) == {2.0}


def test_the_median_of_a_bucket_is_the_mean_of_its_steps():
    history = History()
    for i in range(2 * BUCKETS):
        history.add(float(i), 0.0, float(i % 2), 2.0)
    assert set(history.series().median) == {0.5}


def test_one_loss_that_is_no_number_stays_visible_however_much_is_merged():
    history = History()
    for i in range(20_000):
        history.add(float(i), 1.0, 1.0, math.nan if i == 1234 else 1.0)
    assert sum(math.isnan(value) for value in history.series().high) == 1
    assert not any(map(math.isnan, history.series().low))


def test_steps_without_a_value_do_not_disturb_the_others():
    history = History()
    for i in range(4 * BUCKETS):
        history.add(float(i), *((1.0, 2.0, 3.0) if i % 3 == 0 else (None, None, None)))
    known = {value for value in history.series().median if value is not None}
    assert known == {2.0}


def test_a_value_that_is_no_number_counts_as_the_largest():
    (row,) = spread(np.array([[math.nan, 3.0, 1.0, 2.0]]))
    assert row[:2] == (1.0, 2.5)
    assert math.isnan(row[2])


def test_ranks_that_told_nothing_are_left_out():
    known = np.array([[True, False, True], [False, False, False]])
    assert spread(np.array([[4.0, 9.0, 2.0], [1.0, 1.0, 1.0]]), known) == [(2.0, 3.0, 4.0), (None, None, None)]
