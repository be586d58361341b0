"""Test the confidence in medians and means of series whose neighbouring steps are alike."""

import numpy as np
import pytest

from ddpmon.analysis.statistics.resampling import block_length, ratio, resampled


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


@pytest.mark.parametrize("values", [[5.0] * 40, [1.0, 2.0, 3.0], list(range(50)), [1.0, 9.0] * 30])
def test_values_without_chance_have_blocks_too(values):
    assert 1 <= block_length(np.array(values)) <= len(values)


@pytest.mark.parametrize(("steps", "likeness"), [(400, 0.0), (400, 0.9), (60, 0.6), (30, 0.3)])
def test_two_runs_of_the_same_are_told_apart_about_as_seldom_as_promised(steps, likeness):
    """5% are promised. Steps drawn one by one would tell apart half of those that are like their neighbours."""
    pairs = 40
    drawn = [resampled(chained(steps, likeness, seed)) for seed in range(2 * pairs)]
    apart = sum(
        ratio(a.median, a.medians, b.median, b.medians).certain
        for a, b in zip(drawn[:pairs], drawn[pairs:], strict=True)
    )
    assert apart <= 0.1 * pairs


def test_a_ratio_inverts_when_its_sides_change_places():
    a, b = resampled(chained(200, 0.5, 1)), resampled(1.2 * chained(150, 0.5, 2))
    one, other = ratio(a.median, a.medians, b.median, b.medians), ratio(b.median, b.medians, a.median, a.medians)
    assert one.value == pytest.approx(1 / other.value)
    assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low))
    assert one.certain
    assert other.certain
