import numpy as np
import pytest

from tests.analysis.slowness.runs import (
    BACKWARD,
    DATA,
    FIRST,
    FORWARD,
    SHARES,
    STEP_MS,
    TRANSFER_MS,
    down,
    length_ms,
    own_times,
    play,
    true_gain,
    up,
)

START_US = 1_000_000
QUARTER = 0.25 * STEP_MS


def delayed(own, ranks, phase, ms, when):
    late = own.copy()
    late[when, :, phase] += np.isin(np.arange(own.shape[1]), ranks) * ms
    return late


def test_a_rank_that_is_slow_from_the_start_loses_time_beyond_the_window():
    well = own_times(2000, ranks=2)
    own = delayed(well, [1], DATA, 20.0, slice(None))
    *_, (one,) = play(own, [60, *range(500, 2001, 300)], [up(1, 0), down(0, 0)])
    assert (one.ranks, one.phase, one.pattern, one.since, one.is_exact) == ((1,), "data", "lasting", FIRST, True)
    assert one.changed == "unknown"
    assert one.cost_ms == pytest.approx(length_ms(own).sum() - length_ms(well).sum(), rel=0.05)


def test_a_rank_first_looked_at_late_was_slow_since_before_the_window():
    own = delayed(own_times(2400), [3], FORWARD, QUARTER, slice(400, None))
    ((one,),) = play(own, [2400], [up(3, 400)])
    assert one.since_within[0] <= FIRST + 400 <= one.since_within[1]
    assert not one.is_exact
    ends_us = START_US + 1e3 * np.cumsum(length_ms(own))
    assert one.began_us == pytest.approx([ends_us[step - FIRST - 1] for step in one.since_within], rel=0.005)


def test_two_ranks_are_one_slowdown_although_the_detector_dates_them_roughly():
    own = delayed(own_times(900), [2, 6], DATA, QUARTER, slice(500, None))
    signals = [up(2, 440, "data"), down(2, 440, "forward"), up(6, 530), down(6, 500, "backward")]
    for (one,) in play(own, [560, 900], signals):
        assert (one.ranks, one.scope, one.since, one.changed) == ((2, 6), "ranks", FIRST + 500, "these")


def test_all_ranks_rise_and_one_of_them_more():
    own = own_times(600)
    own[300:, :, BACKWARD] *= 1.3
    own[300:, 5, BACKWARD] *= 1.3
    ((*_, one, other),) = play(own, [600], [up(5, 300), up(None, 300, "backward")])
    assert {one.scope, other.scope} == {"all", "rank"}


def test_transfer_takes_twice_as_long():
    transfer = np.full(1500, TRANSFER_MS)
    transfer[700:] *= 2
    *_, (one,) = play(own_times(1500), [740, 1500], [up(None, 698, "transfer")], transfer=transfer)
    assert (one.scope, one.phase, one.since) == ("all", "transfer", FIRST + 700)
    assert one.excess_ms == pytest.approx(TRANSFER_MS, rel=0.05)


def test_another_phase_becomes_the_slow_one():
    own = delayed(own_times(1500), [3], DATA, 0.4 * STEP_MS, slice(0, 400))
    own = delayed(own, [3], BACKWARD, 0.4 * STEP_MS, slice(400, None))
    before, *after = play(own, [300, 440, 1000], [up(3, 0)])
    assert [(one.phase, one.since, one.until) for one in before] == [("data", FIRST, None)]
    for now, past in after:
        assert (now.phase, now.since, now.until) == ("backward", FIRST + 400, None)
        assert (past.phase, past.since, past.until) == ("data", FIRST, FIRST + 399)


def test_noise_that_hides_a_slowdown_does_not_end_it():
    own = delayed(own_times(900), [2], DATA, 54.0, slice(None))
    own[200:] += np.random.default_rng(1).exponential(400 * STEP_MS, (700, 8, 1)) * SHARES
    moments = [180, 300, 600, 900]
    clear, *noisy = play(own, moments, [up(2, 0)])
    assert clear[0].hidden_since is None
    for (one,) in noisy:
        assert (one.ranks, one.phase, one.since, one.until) == ((2,), "data", FIRST, None)
        assert one.hidden_since == pytest.approx(FIRST + 200, abs=32)
        assert one.gain == pytest.approx(clear[0].gain, rel=0.05), "what is known is from before"


def crowded(own, quiet_steps, seed):
    """Other programs hold each rank up in backward now and then, for some 30 steps."""
    rng, keep = np.random.default_rng(seed), np.exp(-1 / 30)
    crowd = rng.standard_normal((len(own) - quiet_steps, own.shape[1]))
    for step in range(1, len(crowd)):
        crowd[step] = keep * crowd[step - 1] + (1 - keep**2) ** 0.5 * crowd[step]
    held_up = own.copy()
    held_up[quiet_steps:, :, BACKWARD] += 3 * STEP_MS * np.maximum(0.0, crowd)
    return held_up


@pytest.mark.parametrize("seed", [2, 3])
def test_ranks_that_only_seem_slow_stay_among_the_peers(seed):
    own = delayed(crowded(own_times(500, ranks=4, seed=seed), 200, seed), [2], DATA, 54.0, slice(None))
    moments = range(60, 501, 20)
    results = play(own, moments, [up(2, 0), up(0, 220), up(1, 237)])
    assert {one.ranks for result in results for one in result} == {(2,)}
    assert results == play(own, moments, [up(2, 0)])


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_what_a_slow_rank_cost_counts_while_others_hold_its_steps_back(seed):
    well = crowded(own_times(800, ranks=4, seed=seed), 200, seed)
    own = delayed(well, [2], DATA, 54.0, slice(None))
    moments = range(60, 801, 20)
    for (one,), end in zip(play(own, moments, [up(2, 0)]), moments, strict=True):
        assert one.gain == pytest.approx(true_gain(own, well, 0, end), rel=0.15)
