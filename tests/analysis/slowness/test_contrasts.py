"""Contrasts estimate a step, and their spread is turned into a normal value."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.analysis.slowness.contrasts import CHANGE_Z, Contrasts
from ddpmon.analysis.slowness.matched_filters import CONTRASTS, LENGTH_OF, LONG, MEDIUM, SHORT, FilterBank
from ddpmon.analysis.slowness.series import BLOCK_STEPS, PAST_SERIES, PastSeries
from ddpmon.analysis.slowness.spread import PastSpread, PeerSpread, noise_of_contrasts, uncertain, z_of_t
from ddpmon.analysis.statistics.excess import over_peers


@pytest.mark.parametrize(("t", "freedom"), [(6.869, 5), (4.587, 10), (3.460, 60)])
def test_t_values_of_one_probability_are_one_normal_value(t, freedom):
    assert z_of_t(np.array(-t), np.array(freedom)) == pytest.approx(-3.2905, abs=0.03)
    assert np.sqrt(uncertain(np.array(freedom), np.array(3.2905))) == pytest.approx(t / 3.2905, rel=0.1)


def test_each_contrast_is_the_size_of_a_step_that_began_so_long_ago():
    for age in (SHORT[0], SHORT[3], MEDIUM[1], LONG[1]):
        steps = 400
        values = np.zeros((1, steps, 1))
        values[:, steps - age :] = 3.0
        bank = FilterBank(1, 1)
        for first in range(0, steps, BLOCK_STEPS):
            contrasts = bank.filter(values[:, first : first + BLOCK_STEPS])
        size = contrasts[0, age == LENGTH_OF, 0]
        # The baseline follows slowly, and takes some of a long step with it.
        assert len(size) >= 4
        assert size == pytest.approx(3.0, rel=0.1)


def test_no_noise_varies_more_than_its_bound_allows():
    rng, (white, wandering) = np.random.default_rng(5), noise_of_contrasts()
    for memory in (0, 8, 33):
        columns, keep = 500, np.exp(-1 / memory) if memory else 0.0
        bank, level = FilterBank(1, columns), rng.standard_normal(columns)
        for _ in range(200):
            values = np.empty((1, BLOCK_STEPS, columns))
            for step in range(BLOCK_STEPS):
                level = keep * level + np.sqrt(1 - keep**2) * rng.standard_normal(columns)
                values[0, step] = level
            contrasts = bank.filter(values)
            bank.baseline[:] = 0
        covariance = (4 * keep + 3 * keep**2 + 2 * keep**3 + keep**4) / 10
        share = contrasts[0].var(axis=1) / ((1 - keep) * white + covariance * wandering)
        assert share.max() < 1.25
        assert memory or share.min() > 0.75


@pytest.mark.parametrize("spread", [PeerSpread(1, 8), PastSpread(1, 8)])
def test_the_spread_is_that_of_the_noise(spread):
    rng = np.random.default_rng(1)
    ready = np.ones(len(CONTRASTS), bool)
    for _ in range(300):
        contrasts = (2 * rng.standard_normal((1, len(CONTRASTS), 8))).astype(np.float32)
        spread.learn(contrasts, np.zeros((1, 8), bool), ready)
    assert np.median(np.sqrt(spread.measure(contrasts, 0.0)[1])) == pytest.approx(2.0, rel=0.1)
    assert (spread.freedom() > 20).all()


def test_a_warm_up_is_forgotten():
    spread, ready = PeerSpread(1, 8), np.ones(len(CONTRASTS), bool)
    rng, none = np.random.default_rng(2), np.zeros((1, 8), bool)
    for block in range(200):
        noise = rng.standard_normal((1, len(CONTRASTS), 8)).astype(np.float32)
        spread.learn(noise * (100 if block == 0 else 1), none, ready)
    assert np.median(spread.measure(noise, 0.0)[1]) < 5


def test_four_of_eight_slow_ranks_do_not_hide_each_other():
    spread, ready = PeerSpread(1, 8), np.ones(len(CONTRASTS), bool)
    rng = np.random.default_rng(4)
    for _ in range(200):
        noise = rng.standard_normal((1, len(CONTRASTS), 8)).astype(np.float32)
        spread.learn(noise, np.zeros((1, 8), bool), ready)
    noise[..., :4] += 20
    centered, variance, _ = spread.measure(noise, 0.0)
    assert np.median(centered, axis=1) == pytest.approx(np.repeat([[10, -10]], 4, axis=1), abs=1.5)
    assert np.median(variance) < 2


def test_times_are_corrected_for_the_work_by_the_slope_that_earlier_steps_show():
    rng, series = np.random.default_rng(3), PastSeries()
    for _ in range(200):
        work = rng.uniform(50, 150, BLOCK_STEPS)
        phases = np.tile([2.0, 0.0, 10.0, 3.0, 1.0], (BLOCK_STEPS, 4, 1))
        phases[..., 1] = 5 + 0.1 * work[:, None]
        times = series.of_block(phases, np.ones((BLOCK_STEPS, 4)), work)
    assert len(times) == len(PAST_SERIES)
    assert np.ptp(times, axis=1).max() < 0.1


def test_noise_that_grows_in_all_of_four_ranks_is_no_change_of_one():
    rng = np.random.default_rng(6)
    contrasts = Contrasts(60, 4, peers=True, asked_z=CHANGE_Z.enter)
    for block in range(400):
        noise = (0.05 if block < 200 else 0.25) * rng.standard_normal((60 * BLOCK_STEPS, 4))
        values = over_peers(46.0 * noise).reshape(60, BLOCK_STEPS, 4)
        assert not contrasts.judge(values, 46.0), block
