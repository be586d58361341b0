import numpy as np
import pytest

from tests.analysis.slowness.runs import FIRST, FORWARD, OTHER, STEP_MS, own_times, play, true_gain, up


def test_a_rhythm_that_stops_is_over():
    own = own_times(1300)
    own[400:700:10, 4, FORWARD] += 2.5 * STEP_MS
    during, after = play(own, [680, 1000], [up(4, 400, evidence="long_steps")])
    assert during[0].until is None
    assert after[0].until == FIRST + 690


@pytest.mark.parametrize("seed", range(2))
def test_an_irregular_slowdown_keeps_its_share_and_gain_when_blocks_hide_its_first_steps(seed):
    well, when = own_times(1500, seed=seed), np.random.default_rng(seed).random(1500) < 0.3
    own = well.copy()
    own[when, 4, FORWARD] += 25.0
    moments = list(range(300, 1501, 80))
    for end, (one,) in zip(moments, play(own, moments, [up(4, 0, evidence="long_steps")]), strict=True):
        assert (one.ranks, one.pattern, one.since) == ((4,), "irregular", FIRST + int(when.argmax()))
        assert one.share == pytest.approx(when[:end].mean(), abs=0.02)
        assert one.gain == pytest.approx(true_gain(own[:end], well[:end], 0), rel=0.015)


@pytest.mark.parametrize("seed", range(4))
def test_longer_and_rarer_pauses_in_other_phases_do_not_hide_a_rhythm(seed):
    rng, own = np.random.default_rng(seed), own_times(600, ranks=4, seed=seed)
    for step, rank in np.argwhere(rng.random((600, 4)) < 0.03):
        own[step, rank, rng.integers(OTHER)] += rng.normal(1.3, 0.1) * STEP_MS
    own[20::7, 1, OTHER] += 0.35 * STEP_MS
    for (one,) in play(own, [400, 500, 600], [up(1, 0, evidence="long_steps")]):
        assert (one.ranks, one.phase, one.pattern, one.every) == ((1,), "other", "steps", 7)
        assert one.since == FIRST + 20
