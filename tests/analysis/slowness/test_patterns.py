import numpy as np
import pytest

from tests.analysis.slowness.runs import FIRST, FORWARD, STEP_MS, own_times, play, true_gain, up


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
