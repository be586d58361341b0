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


@pytest.mark.parametrize("size", [0.1, 0.25])
def test_a_rank_that_is_slow_from_a_step_on_until_the_end(size):
    well = own_times(1500)
    own = delayed(well, [3], BACKWARD, size * STEP_MS, slice(700, None))
    results = play(own, [720, 800, 1100, 1500], [up(3, 704)])
    for (one,), end in zip(results, [720, 800, 1100, 1500], strict=True):
        assert (one.ranks, one.scope, one.phase, one.pattern) == ((3,), "rank", "backward", "lasting")
        assert one.since_within[0] <= FIRST + 700 <= one.since_within[1]
        assert abs(one.since - FIRST - 700) <= 2
        assert (one.until, one.hidden_since, one.changed) == (None, None, "these")
        assert one.gain == pytest.approx(true_gain(own, well, 700, end), rel=0.015)
        lost = length_ms(own)[700:end].sum() - length_ms(well)[700:end].sum()
        assert one.cost_ms == pytest.approx(lost, rel=0.15)
    assert results[-1][0].is_exact or size < 0.25
    assert len({one.since for (one,) in results[2:]}) == 1, "a first step that many steps agree on stays"


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


def test_the_other_of_two_ranks_got_faster():
    own = own_times(1200, ranks=2)
    own[400:, 1] *= 0.7
    for (one,) in play(own, [440, 1200], [up(0, 400), down(1, 400)]):
        assert (one.ranks, one.changed, one.since) == ((0,), "others", FIRST + 400)


def test_most_ranks_become_slow_and_the_few_are_the_reference():
    well = own_times(600)
    own = delayed(well, range(5), BACKWARD, QUARTER, slice(300, None))
    for (one,) in play(own, [340, 600], [down(rank, 300) for rank in (5, 6, 7)]):
        assert (one.ranks, one.scope, one.since) == ((0, 1, 2, 3, 4), "ranks", FIRST + 300)
    assert one.gain == pytest.approx(true_gain(own, well, 300), rel=0.015)


def test_two_ranks_are_one_slowdown_although_the_detector_dates_them_roughly():
    own = delayed(own_times(900), [2, 6], DATA, QUARTER, slice(500, None))
    signals = [up(2, 440, "data"), down(2, 440, "forward"), up(6, 530), down(6, 500, "backward")]
    for (one,) in play(own, [560, 900], signals):
        assert (one.ranks, one.scope, one.since, one.changed) == ((2, 6), "ranks", FIRST + 500, "these")


@pytest.mark.parametrize("slow", [range(24), range(8, 16)])
def test_hosts_become_slow(slow):
    own = delayed(own_times(500, ranks=32), slow, BACKWARD, QUARTER, slice(300, None))
    hosts = {rank: f"host{rank // 8}" for rank in range(32)}
    signals = [up(rank, 300) for rank in slow] if len(slow) < 16 else [down(rank, 300) for rank in range(24, 32)]
    ((one,),) = play(own, [500], signals, hosts=hosts)
    assert (one.ranks, one.scope, one.since) == (tuple(slow), "host", FIRST + 300)


def test_ranks_that_are_slow_in_different_phases_have_faults_of_their_own():
    own = delayed(own_times(500), [1], DATA, QUARTER, slice(200, None))
    own = delayed(own, [3, 4], BACKWARD, QUARTER, slice(200, None))
    for described in play(own, [240, 500], [up(rank, 200) for rank in (1, 3, 4)]):
        assert sorted((one.ranks, one.phase) for one in described) == [((1,), "data"), ((3, 4), "backward")]
        assert all(one.gain > one.gain_alone for one in described), "fixing one alone gains less"


def test_ranks_that_get_faster_or_recover_hold_nobody_back():
    own = own_times(600)
    own[300:, 2] *= 0.7
    assert play(own, [600], [down(2, 300)]) == [[]]


def test_all_ranks_become_slower_in_a_phase():
    well = own_times(1500)
    own = well.copy()
    own[700:, :, BACKWARD] *= 1.3
    for (one,) in play(own, [740, 1500], [up(None, 703, "backward")]):
        assert (one.scope, len(one.ranks), one.phase, one.since) == ("all", 8, "backward", FIRST + 700)
        assert one.excess_ms == pytest.approx(0.3 * SHARES[BACKWARD] * STEP_MS, rel=0.1)
    assert one.gain == pytest.approx(true_gain(own, well, 700), rel=0.015)


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


def test_a_slowdown_that_ends():
    well = own_times(1500)
    own = delayed(well, [3], BACKWARD, QUARTER, slice(400, 900))
    results = play(own, [500, 920, 1500], [up(3, 402), down(3, 900)])
    assert [one.until for (one,) in results] == [None, FIRST + 899, FIRST + 899]
    assert [one.pattern for (one,) in results] == ["lasting", "stretch", "stretch"]
    assert results[1][0].gain == pytest.approx(true_gain(own, well, 400, 900), rel=0.015)


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


def test_a_ramp_has_an_interval():
    own = own_times(1500)
    own[:, 3, BACKWARD] += np.clip((np.arange(1500) - 400) / 500, 0, 1) * 0.5 * STEP_MS
    for (one,) in play(own, [700, 1000, 1500], [up(3, 480)]):
        assert (one.ranks, one.pattern, one.is_exact) == ((3,), "ramp", False)
        assert one.since_within[0] <= FIRST + 400 <= one.since_within[1]


def test_nothing_is_described_without_a_signal_in_noise():
    assert play(own_times(600, noise=0.3), [40, 300, 600], []) == [[], [], []]
