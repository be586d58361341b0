"""Excess over the peers, and running medians."""

import numpy as np
import pytest

from ddpmon.analysis.statistics.arrays import NARROW, row_medians
from ddpmon.analysis.statistics.excess import over_peers, running_median


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, NARROW, NARROW + 1, NARROW + 2])
def test_the_excess_is_over_the_median_of_the_others_ties_included(ranks):
    values = np.random.default_rng(0).integers(0, 6, (60, ranks)).astype(float)
    others = [np.median(np.delete(values, column, axis=1), axis=1) for column in range(ranks)]
    np.testing.assert_array_equal(row_medians(values), np.median(values, axis=1))
    assert np.allclose(over_peers(values), values - np.column_stack(others))


def test_one_rank_alone_exceeds_nobody():
    assert not over_peers(np.ones((5, 1))).any()


def test_the_running_median_takes_out_two_long_steps_and_keeps_a_change_sharp():
    series = np.zeros((60, 1))
    series[[10, 11, 25]] = 100
    series[40:] = 7
    smooth = running_median(series)
    assert set(smooth[:, 0].tolist()) == {0.0, 7.0}
    assert int((smooth[:, 0] == 7).argmax()) == 40 - 2
    rows = np.random.default_rng(0).normal(size=(50, 3))
    assert np.allclose(running_median(rows), np.median([rows[i : 46 + i] for i in range(5)], axis=0))
