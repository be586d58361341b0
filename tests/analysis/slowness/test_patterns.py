import numpy as np
import pytest

from tests.analysis.slowness.runs import BACKWARD, FIRST, FORWARD, STEP_MS, length_ms, own_times, play, true_gain, up


def test_seven_of_every_25_seconds_is_a_rhythm_of_seconds():
    own, now = own_times(2600), 0.0
    when = np.zeros(len(own), bool)
    disturbed = own.copy()
    disturbed[:, 3, BACKWARD] += 0.4 * STEP_MS
    for step, (well_ms, slow_ms) in enumerate(zip(length_ms(own), length_ms(disturbed), strict=True)):
        when[step] = now >= 10_000 and (now - 10_000) % 25_000 < 7000
        now += slow_ms if when[step] else well_ms
    own[when] = disturbed[when]
    begins = np.flatnonzero(np.diff(when.astype(int)) == 1) + 1
    results = play(own, list(range(240, 2601, 100)), [up(3, int(begin)) for begin in begins])
    (one,) = results[-1]
    assert (one.ranks, one.phase, one.pattern) == ((3,), "backward", "seconds")
    assert one.every == pytest.approx(25.0, abs=0.3)
    assert one.share == pytest.approx(when[begins[0] :].mean(), abs=0.03)
    assert (one.since, one.until) == (FIRST + begins[0], None)


def test_every_tenth_step_is_a_rhythm_of_steps():
    well = own_times(1500)
    own = well.copy()
    own[700::10, 4, FORWARD] += 2.5 * STEP_MS
    for (one,) in play(own, [780, 1100, 1500], [up(4, 700, evidence="long_steps")]):
        assert (one.ranks, one.phase, one.pattern, one.every) == ((4,), "forward", "steps", 10.0)
        assert (one.since, one.until, round(one.share, 2)) == (FIRST + 700, None, 0.1)
    assert one.gain == pytest.approx(true_gain(own, well, 700), rel=0.015)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_tenth_of_the_steps_has_no_rhythm(seed):
    well, when = own_times(1500, seed=seed), np.random.default_rng(seed).random(1500) < 0.1
    own = well.copy()
    own[when, 4, FORWARD] += 70.0
    first = int(when.argmax())
    for (one,) in play(own, [300, 500, 700, 900, 1200, 1500], [up(4, first, evidence="long_steps")]):
        assert (one.ranks, one.phase, one.pattern, one.every) == ((4,), "forward", "irregular", None)
        assert one.since_within[0] <= FIRST + first <= one.since_within[1]
        assert one.share == pytest.approx(0.1, abs=0.035)
    assert one.gain == pytest.approx(true_gain(own, well, first), rel=0.02)


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
