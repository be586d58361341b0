import pytest

from ddpmon.analysis.slowness.engine import describe_slowdowns
from ddpmon.analysis.slowness.past import Past
from ddpmon.analysis.steps.window import Window
from tests.analysis.slowness.runs import BACKWARD, DATA, FIRST, STEP_MS, own_times, play, up
from tests.worlds import world_with

BURST_STEPS, BURST_MS = 15, 0.2 * STEP_MS


def with_bursts(begins):
    """A run of 600 steps in which ranks take longer in backward for 15 steps from these on."""
    own = own_times(600)
    for rank, begin in begins:
        own[begin : begin + BURST_STEPS, rank, BACKWARD] += BURST_MS
    return own


def test_a_burst_such_as_other_ranks_had_is_no_slowdown():
    own = with_bursts([(2, 100), (5, 180), (1, 305), (7, 425)])
    signals = [up(1, 305), up(7, 425)]
    assert play(own, [320, 440, 600], signals) == [[], [], []]


def test_a_rank_that_stays_slow_is_told_apart_from_bursts():
    own = with_bursts([(2, 100), (5, 180)])
    own[312:, 1, BACKWARD] += BURST_MS
    early, *later = play(own, [320, 360, 600], [up(1, 308)])
    assert early == []
    for (one,) in later:
        assert (one.ranks, one.phase, one.since, one.until) == ((1,), "backward", FIRST + 312, None)


def test_the_first_burst_of_a_young_run_is_no_slowdown_and_what_outlasts_it_is():
    own = own_times(200)
    own[60:80, 1, BACKWARD] += BURST_MS
    own[120:, 5, BACKWARD] += 2 * BURST_MS
    first, second, (one,) = play(own, [80, 140, 160], [up(1, 60), up(5, 120)])
    assert (first, second) == ([], [])
    assert (one.ranks, one.since) == ((5,), FIRST + 120)


def test_a_burst_that_was_taken_for_a_lasting_change_ends():
    own = own_times(600, noise=0.3)
    own[300:320, 1, BACKWARD] += STEP_MS
    early, *later = play(own, [320, 400, 600], [up(1, 300)])
    assert [(one.ranks, one.until) for one in early] == [((1,), None)]
    for (one,) in later:
        assert one.until == pytest.approx(FIRST + 319, abs=5)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_rank_that_differs_a_little_for_good_is_not_taken_in(at_once):
    own = own_times(500, noise=0.02)
    own[:, 7, DATA] += 0.05 * STEP_MS
    own[:, 0] *= 1.015
    world, window, past = world_with(own), Window(600), Past()
    window.append(world)
    past.append(world)
    told, signals = [], [up(7, 0, evidence="start"), up(0, 0, evidence="start")]
    for known in (signals,) if at_once else (signals[:1], signals):
        told = describe_slowdowns(window.as_world(), past, known, dict.fromkeys(world.ranks, "here"), told)
        assert [one.ranks for one in told] == [(7,)]
