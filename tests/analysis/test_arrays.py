"""Medians, which are asked for hundreds of times in a judgement."""

import numpy as np
import pytest

from ddpmon.analysis.statistics.arrays import NARROW, medians, middles


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, NARROW, NARROW + 1, NARROW + 2])
def test_the_middles_of_rows_are_the_median_and_what_lies_beside_it(ranks):
    rows = np.random.default_rng(0).standard_normal((40, ranks))
    low, middle, high = middles(rows)
    in_order, half = np.sort(rows, axis=1), ranks // 2
    beside = (max(half - 1, 0), min(half + 1, ranks - 1)) if ranks % 2 else (half - 1, half)
    np.testing.assert_array_equal([low, high], in_order[:, beside].T)
    np.testing.assert_array_equal(middle, np.median(rows, axis=1))
    np.testing.assert_array_equal(medians(rows), middle)
