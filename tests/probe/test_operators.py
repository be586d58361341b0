"""Sums of torch's profiler records: the time outside of operators, and records of the profiler itself."""

from __future__ import annotations

from ddpmon.messages import OUTSIDE_OPERATORS
from ddpmon.probe.operators import TRAINING_THREAD, Phases, Recorded, Slice, Totals
from ddpmon.probe.records import OTHER

FORWARD, BACKWARD = 1, 2
US = 1000


def test_the_time_in_which_autograds_thread_works_is_not_outside_of_operators() -> None:
    phases = Phases([(0, FORWARD), (100 * US, BACKWARD)], 0, 1000 * US)
    operators = [
        Slice(TRAINING_THREAD, 0, 100 * US, "aten::addmm", 1),
        Slice("thread 7", 100 * US, 900 * US, "autograd::engine::evaluate_function: AddmmBackward0", 2),
        Slice("thread 7", 300 * US, 400 * US, "Activity Buffer Request", 3),
        Slice(TRAINING_THREAD, 910 * US, 950 * US, "INVALID", 4),
    ]
    totals = Totals(phases)
    totals.add(Recorded(operators, [], []), lambda: None)
    assert {(one.name, one.phase): one.self_us for one in totals.operators([])} == {
        ("aten::addmm", FORWARD): 100,
        ("autograd::engine::evaluate_function: AddmmBackward0", BACKWARD): 700,
        (OUTSIDE_OPERATORS, BACKWARD): 60,
    }


def test_an_operator_that_begins_just_before_its_phase_is_of_that_phase() -> None:
    """torch's record of DDP.forward begins before the hook in it, and the record of an optimizer's step too."""
    phases = Phases([(0, OTHER), (2 * US, FORWARD), (100 * US, OTHER)], 0, 200 * US)
    operators = [
        Slice(TRAINING_THREAD, US, 101 * US, "DistributedDataParallel.forward", 1),
        Slice(TRAINING_THREAD, 10 * US, 90 * US, "aten::addmm", 2),
    ]
    totals = Totals(phases)
    totals.add(Recorded(operators, [], []), lambda: None)
    assert {(one.name, one.phase): one.self_us for one in totals.operators([]) if one.name != OUTSIDE_OPERATORS} == {
        ("aten::addmm", FORWARD): 80,
        ("DistributedDataParallel.forward", FORWARD): 20,
    }
