"""Excess over the peers, and what chance does to means of it."""

import numpy as np
import pytest

from ddpmon.analysis.statistics.arrays import running_total
from ddpmon.analysis.statistics.change_points import ending, onset
from ddpmon.analysis.statistics.excess import chance, over_peers, steady


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 9])
def test_the_excess_is_over_the_median_of_the_others_ties_included(ranks):
    values = np.random.default_rng(0).integers(0, 6, (60, ranks)).astype(float)
    others = [np.median(np.delete(values, column, axis=1), axis=1) for column in range(ranks)]
    assert np.allclose(over_peers(values), values - np.column_stack(others))


def test_one_rank_alone_exceeds_nobody():
    assert not over_peers(np.ones((5, 1))).any()


def test_the_running_median_takes_out_two_long_steps_and_keeps_a_change_sharp():
    series = np.zeros((60, 1))
    series[[10, 11, 25]] = 100
    series[40:] = 7
    smooth = steady(series)
    assert set(smooth[:, 0].tolist()) == {0.0, 7.0}
    assert int((smooth[:, 0] == 7).argmax()) == 40 - 2
    rows = np.random.default_rng(0).normal(size=(50, 3))
    assert np.allclose(steady(rows), np.median([rows[i : 46 + i] for i in range(5)], axis=0))


@pytest.mark.parametrize("lasts", [1, 8])
def test_the_bound_holds_for_means_of_noise_that_lasts(lasts):
    """Means over 64 steps exceed three standard errors in few of a thousand series."""
    rng = np.random.default_rng(1)
    noise = np.repeat(rng.normal(size=(512 // lasts, 1000)), lasts, axis=0)
    bound = chance(running_total(noise), 0.0).bound_ms(64, 3.0)
    assert (noise[-64:].mean(axis=0) > bound).mean() < 0.01
    assert np.median(bound) < 3 * 1.6 * np.sqrt(lasts / 64)


@pytest.mark.parametrize("first", [0, 13, 150, 280])
def test_a_change_is_dated_to_the_step(first):
    excess = np.random.default_rng(first).normal(0, 1, 300)
    excess[first:] += 8
    excess[::40] += 60  # single long steps do not move it
    assert abs(onset(excess, 299) - first) <= 2
    assert abs(ending(excess[::-1], 0) - (299 - first)) <= 2


def test_the_stretch_before_a_pause_is_another_one():
    excess = np.random.default_rng(0).normal(0, 0.5, 300)
    excess[50:150] += 10
    excess[200:] += 10
    assert abs(onset(excess, 299) - 200) <= 2
    assert abs(ending(excess, 100) - 149) <= 2
