"""Test the confidence in medians and means of series whose neighbouring steps are alike."""

import numpy as np
import pytest

from ddpmon.analysis.statistics.resampling import block_length, resampled, resampled_ratio


def chained(steps, likeness, seed):
    """Step times of 30 ms of which each is like the one before: AR(1)."""
    random = np.random.default_rng(seed)
    strays = random.standard_normal(steps)
    for i in range(1, steps):
        strays[i] = likeness * strays[i - 1] + np.sqrt(1 - likeness**2) * strays[i]
    return 30 + strays


def test_blocks_are_as_long_as_the_likeness_of_neighbours_lasts():
    lengths = [np.median([block_length(chained(1000, r, seed)) for seed in range(9)]) for r in (0.0, 0.5, 0.9, 0.98)]
    assert lengths == sorted(lengths)
    assert lengths[0] == 10
    assert lengths[2] >= 40


@pytest.mark.parametrize(("steps", "likeness"), [(400, 0.9), (30, 0.3)])
def test_two_runs_of_the_same_are_told_apart_about_as_seldom_as_promised(steps, likeness):
    """5% are promised. Steps drawn one by one would tell apart half of those that are like their neighbours."""
    pairs = 20
    drawn = [resampled(chained(steps, likeness, seed)) for seed in range(2 * pairs)]
    apart = sum(
        resampled_ratio(a.median, a.medians, b.median, b.medians).is_certain
        for a, b in zip(drawn[:pairs], drawn[pairs:], strict=True)
    )
    assert apart <= 0.1 * pairs
