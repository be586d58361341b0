"""Test how long a run may go without a step before it counts as stalled."""

from hypothesis import given
from hypothesis import strategies as st

from ddpmon.analysis.run_state import WARM_UP_STEPS, LongestPauses, Signs, stalled_after_s, state


def after(lengths, steps=100):
    """Seconds until stalled, after steps of these lengths (by their number) among quick ones."""
    pauses = LongestPauses()
    for step in range(1, steps + 1):
        pauses.add_length(step, lengths.get(step, 0.02))
    return stalled_after_s(0.02, pauses.longest_s(steps))


@given(step_s=st.floats(0, 1), pause_s=st.floats(0, 10))
def test_steps_under_a_second_never_stall_unnoticed_for_more_than_15_s(step_s, pause_s):
    assert 10.0 <= stalled_after_s(step_s, pause_s) <= 15.0


def test_slow_steps_are_given_the_time_of_several():
    assert stalled_after_s(12.0) == 96.0
    assert state(Signs("running", steps=20, idle_s=80, step_s=12.0)) == "running"
    assert state(Signs("running", steps=20, idle_s=97, step_s=12.0)) == "stalled"


def test_an_evaluation_that_took_a_minute_before_is_no_stall_the_next_time():
    assert after({50: 60.0}) == 90.0
    assert state(Signs("running", steps=100, idle_s=70, step_s=0.02, pause_s=60.0)) == "running"
    assert state(Signs("running", steps=100, idle_s=70, step_s=0.02)) == "stalled"


def test_a_slow_first_step_justifies_a_slow_second_one_and_nothing_later():
    slow = {1: 60.0, 2: 45.0}
    assert after(slow, steps=2) == 90.0
    assert after(slow, steps=WARM_UP_STEPS) == 10.0
