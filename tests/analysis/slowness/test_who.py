"""Signals say that something changed; what each rank took before says which ranks did."""

from dataclasses import replace

import pytest

from tests.analysis.slowness.runs import BACKWARD, DATA, FIRST, FORWARD, STEP_MS, down, own_times, play, up

BEGIN = 300


def slowed(slow, ms, *, where=DATA, begin=BEGIN, steps=420, ranks=8):
    own = own_times(steps, ranks)
    own[begin:, list(slow), where] += ms
    return own


def named(own, signals, **more):
    """Return ranks, phase, first step and who changed, of all slowdowns at the end."""
    moments = [BEGIN + 20, len(own)]
    return [(one.ranks, one.phase, one.since, one.changed) for one in play(own, moments, signals, **more)[-1]]


@pytest.mark.parametrize("slow", [(1, 2, 4, 7), (1, 2, 4, 5, 7), (0, 1, 2, 4, 5, 6, 7)])
@pytest.mark.parametrize("size", [0.1, 0.4])
def test_a_signal_of_all_ranks_is_of_those_that_are_slower_than_before(slow, size):
    own = slowed(slow, size * STEP_MS)
    assert named(own, [up(None, BEGIN, "data")]) == [(slow, "data", FIRST + BEGIN, "these")]


def test_signals_of_some_of_both_halves_name_one_half():
    own = slowed((1, 2, 4, 7), 0.1 * STEP_MS, where=BACKWARD)
    signals = [up(4, BEGIN), down(3, BEGIN), down(5, BEGIN), up(None, BEGIN, "backward")]
    assert named(own, signals) == [((1, 2, 4, 7), "backward", FIRST + BEGIN, "these")]


def test_the_few_whose_phase_seems_faster_show_that_the_others_became_slower():
    own = slowed((0, 1, 2, 3, 4), 0.25 * STEP_MS, where=BACKWARD)
    signals = [down(6, BEGIN, "backward"), up(6, BEGIN, "forward")]
    assert named(own, signals) == [((0, 1, 2, 3, 4), "backward", FIRST + BEGIN, "these")]


def test_of_many_ranks_with_signals_none_is_slow_that_only_seems_slower_in_a_phase():
    ranks, slow = 34, tuple(range(17))
    own = slowed(slow, 0.25 * STEP_MS, where=BACKWARD, ranks=ranks)
    signals = [up(rank, BEGIN) for rank in slow]
    for rank in range(len(slow), ranks):
        signals += [replace(up(rank, BEGIN, "forward"), z=7.0), down(rank, BEGIN)]
    assert named(own, signals) == [(slow, "backward", FIRST + BEGIN, "these")]


@pytest.mark.parametrize("signals", [[down(2, BEGIN)], [up(2, BEGIN, "data")], [down(2, BEGIN), up(2, BEGIN, "data")]])
def test_a_rank_that_gets_faster_in_one_phase_is_not_slow_in_the_others(signals):
    assert named(slowed((2,), -0.2 * STEP_MS, where=FORWARD), signals) == []


def test_of_two_ranks_the_one_that_stays_is_not_slow_when_the_other_recovers():
    own = slowed((1,), 0.4 * STEP_MS, begin=0, ranks=2)
    own[200:, 1, DATA] -= 0.4 * STEP_MS
    results = play(own, [180, 260, 420], [up(1, 0), down(0, 0), down(1, 200), up(0, 200)])
    assert [[(one.ranks, one.until) for one in now] for now in results[1:]] == [[((1,), FIRST + 199)]] * 2


def test_which_of_two_ranks_changed_is_not_said_before_both_have_shown_it():
    own = own_times(440, ranks=2)
    own[415:, 1] *= 0.7
    early, late = play(own, [420, 440], [up(0, 405)])
    assert early == []
    assert [(one.ranks, one.changed) for one in late] == [((0,), "others")]


def test_most_ranks_are_the_rule_where_nothing_is_known_from_before():
    own = slowed(range(5), 0.25 * STEP_MS, begin=0)
    assert named(own, [down(rank, 0, evidence="start") for rank in (5, 6, 7)]) == []
