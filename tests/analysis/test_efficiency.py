"""Efficiencies and what-if gains of made-up worlds."""

import numpy as np
import pytest

from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.summary import loss_trend, summarise
from ddpmon.analysis.steps.what_if import gain_all_even, gain_if_like_peers, gain_with_even_transfer
from tests.worlds import own_times, records, world_of, world_with


def test_a_persistent_straggler_lowers_the_persistent_factor_alone():
    own = own_times(100, 4)
    own[:, 3, 2] += 13.5
    summary = summarise(world_with(own))
    tree = summary.sums.efficiency
    assert tree.load_balance_persistent == pytest.approx((3 * 27 + 40.5) / 4 / 40.5)
    assert tree.load_balance_moving == pytest.approx(1)
    assert summary.critical_share.tolist() == [0, 0, 0, 1]
    assert summary.over_median[3] == pytest.approx(0.5)


def test_a_straggler_that_moves_lowers_the_moving_factor_and_each_is_critical_equally_often():
    own = own_times(100, 4)
    for step in range(100):
        own[step, step % 4, 0] += 12
    summary = summarise(world_with(own))
    tree = summary.sums.efficiency
    assert tree.load_balance_persistent == pytest.approx(1)
    assert tree.load_balance_moving == pytest.approx(30 / 39)
    assert summary.critical_share.tolist() == [0.25] * 4
    assert np.allclose(summary.own_ms, 30)


def test_fixing_the_straggler_gains_what_it_cost():
    own = own_times(60, 4)
    own[:, 1, 0] += 20
    world = world_with(own, transfer=6)
    assert gain_if_like_peers(world, 1) == pytest.approx(53 / 33)
    assert gain_if_like_peers(world, 1, "data") == pytest.approx(53 / 33)
    assert gain_if_like_peers(world, 1, "backward") == pytest.approx(1)
    assert gain_if_like_peers(world, 0) == pytest.approx(1)
    assert gain_all_even(world) == pytest.approx(53 / 33)
    assert StepSums.from_world(world).gain_without_waiting == pytest.approx(53 / 38), "each step is its mean work then"


def test_samples_are_counted_per_second():
    summary = summarise(world_with(own_times(50, 2), transfer=6, samples=[64, 32]))
    assert summary.samples_per_s == pytest.approx([64 / 0.033, 32 / 0.033])


@pytest.mark.parametrize(("slope", "falls"), [(-0.01, True), (0.01, False), (0.0, None)])
def test_the_trend_of_the_loss_is_told_only_where_it_stands_out(slope, falls):
    noise = np.random.default_rng(1).normal(0, 0.05, (200, 2))
    loss = 3 + slope * np.arange(200)[:, None] + noise
    value, trend = loss_trend(world_with(own_times(200, 2), loss=loss))
    assert trend is falls
    assert value == pytest.approx(loss[-20:].mean())


def test_a_loss_that_is_no_number_stays_visible():
    loss = np.full((50, 2), 1.0)
    loss[-1, 1] = np.nan
    value, trend = loss_trend(world_with(own_times(50, 2), loss=loss))
    assert np.isnan(value)
    assert trend is None


def test_transfers_at_their_median_lose_their_outliers():
    told = records(own_times(60, 2), transfer=6)
    for steps in told.values():
        for step in steps[::10]:
            step.length_us += 60_000
            step.syncs[0].end_us += 60_000
            step.end_us += 60_000
    assert gain_with_even_transfer(world_of(told)) == pytest.approx((33 + 6) / 33, rel=1e-3)
