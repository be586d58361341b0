"""Medians and quantiles, which are asked for hundreds of times in a judgement."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ddpmon.analysis.statistics.arrays import NARROW, medians, middles, quantile


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, NARROW, NARROW + 1, NARROW + 2])
def test_the_middles_of_rows_are_the_median_and_what_lies_beside_it(ranks):
    rows = np.random.default_rng(0).standard_normal((40, ranks))
    low, middle, high = middles(rows)
    in_order, half = np.sort(rows, axis=1), ranks // 2
    beside = (max(half - 1, 0), min(half + 1, ranks - 1)) if ranks % 2 else (half - 1, half)
    np.testing.assert_array_equal([low, high], in_order[:, beside].T)
    np.testing.assert_array_equal(middle, np.median(rows, axis=1))
    np.testing.assert_array_equal(medians(rows), middle)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6)), st.floats(0, 1))
def test_a_quantile_lies_between_values_in_proportion(values, share):
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-6)
