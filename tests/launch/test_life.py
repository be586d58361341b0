"""Test when the supervisor asks, kills and is done: events in, instructions out, on a made-up clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.launch.life import SETTLE_S, STOP_MARGIN_S, STUCK_AFTER_S, TERMINATE_S, Do, Life

GRACE_S = 20.0
KILL_S = GRACE_S + STOP_MARGIN_S


@pytest.fixture
def life():
    return Life(GRACE_S)


def test_a_run_that_ends_and_leaves_nothing_is_over_at_once(life):
    assert life.due_action(0, left=3) is Do.NOTHING
    assert life.handle_command_end(5, by_signal=False) is Do.NOTHING
    assert life.due_action(5, left=0) is Do.FINISH


def test_orphans_of_an_ordinary_end_get_time_then_sigterm_then_sigkill(life):
    life.handle_command_end(0, by_signal=False)
    assert life.due_action(SETTLE_S - 0.1, left=1) is Do.NOTHING
    assert life.due_action(SETTLE_S, left=1) is Do.TERMINATE
    assert life.due_action(SETTLE_S + TERMINATE_S - 0.1, left=1) is Do.NOTHING
    assert life.due_action(SETTLE_S + TERMINATE_S, left=1) is Do.KILL
    assert life.due_action(SETTLE_S + TERMINATE_S + 0.1, left=0) is Do.FINISH


def test_ranks_of_a_killed_launcher_are_asked_at_once_and_have_the_whole_grace(life):
    assert life.handle_command_end(0, by_signal=True) is Do.ASK_RANKS
    assert life.due_action(KILL_S - 0.1, left=2, ranks=2) is Do.NOTHING
    assert life.due_action(KILL_S, left=2, ranks=2) is Do.KILL


def test_what_outlives_the_ranks_of_a_killed_launcher_is_swept(life):
    life.handle_command_end(0, by_signal=True)
    assert life.due_action(1, left=1, ranks=0) is Do.NOTHING
    assert life.due_action(1 + SETTLE_S, left=1, ranks=0) is Do.TERMINATE


def test_a_second_stop_joins_the_first_and_does_not_move_its_end(life):
    life.request_stop(0)
    assert life.request_stop(5) is Do.NOTHING
    assert life.due_action(KILL_S - 0.1, left=5) is Do.NOTHING
    assert life.due_action(KILL_S, left=5) is Do.KILL


def test_a_second_stop_that_says_now_means_now(life):
    life.request_stop(0)
    assert life.request_stop(1, now=True) is Do.KILL


def test_stop_now_asks_nobody(life):
    assert life.request_stop(0, now=True) is Do.KILL


def test_a_rank_that_outlives_its_asked_launcher_keeps_the_grace_after_sigterm(life):
    """A launcher may die of the first signal while its ranks save a checkpoint: they get no second one."""
    life.request_stop(0)
    life.handle_command_end(1, by_signal=True)
    assert life.due_action(KILL_S - 0.1, left=1, ranks=1) is Do.NOTHING
    assert life.due_action(KILL_S, left=1, ranks=1) is Do.KILL


def test_what_is_not_known_as_a_rank_gets_sigterm_and_the_rest_of_the_grace(life):
    life.request_stop(0)
    life.handle_command_end(1, by_signal=True)
    life.due_action(1, left=1)
    assert life.due_action(1 + SETTLE_S, left=1) is Do.TERMINATE
    assert life.due_action(KILL_S - 0.1, left=1) is Do.NOTHING
    assert life.due_action(KILL_S, left=1) is Do.KILL


def test_what_is_left_of_an_asked_run_gets_sigterm_no_later_than_the_grace_ends():
    life = Life(grace_s=1.0)
    life.request_stop(0)
    life.handle_command_end(2, by_signal=False)
    life.due_action(2, left=1)
    assert life.due_action(1.0 + STOP_MARGIN_S - 0.1, left=1) is Do.NOTHING
    assert life.due_action(1.0 + STOP_MARGIN_S, left=1) is Do.TERMINATE
    assert life.due_action(1.0 + STOP_MARGIN_S + TERMINATE_S, left=1) is Do.KILL


def test_killing_is_repeated_then_given_up(life):
    """A process may fork between being found and being killed; one stuck in the kernel never goes."""
    life.request_stop(0, now=True)
    assert life.due_action(1, left=1) is Do.KILL
    life.handle_command_end(1, by_signal=True)
    assert life.due_action(STUCK_AFTER_S - 0.1, left=1) is Do.KILL
    assert life.due_action(STUCK_AFTER_S, left=1) is Do.FINISH


def test_a_run_taken_over_is_over_when_nothing_is_left():
    life = Life(GRACE_S)
    life.take_over(command_ended=True)
    assert life.due_action(0, left=2) is Do.NOTHING
    assert life.request_stop(0) is Do.ASK
    assert life.due_action(1, left=0) is Do.FINISH


def test_a_run_taken_over_in_the_midst_of_a_stop_is_not_asked_again_and_keeps_the_rest_of_its_grace(life):
    life.take_over(command_ended=False, grace_until=3.0)
    assert life.request_stop(1) is Do.NOTHING
    assert life.due_action(3.0 + STOP_MARGIN_S - 0.1, left=2, ranks=1) is Do.NOTHING
    assert life.due_action(3.0 + STOP_MARGIN_S, left=2, ranks=1) is Do.KILL


events = st.lists(st.sampled_from(["stop", "now", "ended", "killed", "tick", "gone"]), max_size=30)


@given(events=events, pause_s=st.floats(0.0, 30.0))
def test_whatever_happens_it_ends_within_its_bounds_once_a_stop_was_asked(events, pause_s):
    life, at = Life(GRACE_S), 0.0
    for event in events:
        at += pause_s
        if event in {"stop", "now"}:
            life.request_stop(at, now=event == "now")
        elif event in {"ended", "killed"} and not life.command_ended:
            life.handle_command_end(at, by_signal=event == "killed")
        else:
            life.due_action(at, left=0 if event == "gone" else 1)
    life.request_stop(at)
    longest = at + KILL_S + SETTLE_S + TERMINATE_S + STUCK_AFTER_S
    done = life.due_action(at, left=1)
    while done is not Do.FINISH:
        at += 0.5
        assert at <= longest + 1
        done = life.due_action(at, left=1)
