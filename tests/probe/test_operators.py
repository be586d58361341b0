"""Sums of torch's profiler records: the time outside of operators, and records of the profiler itself."""

from __future__ import annotations

from ddpmon.messages import OUTSIDE_OPERATORS
from ddpmon.probe.operators import TRAINING_THREAD, Phases, Recorded, Slice, Totals, pass_ends
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


def test_a_pass_lasts_until_the_gpu_has_done_what_was_launched_in_it() -> None:
    """The training thread launches three passes of 6 ms each, and the GPU needs 31 ms for each of them."""
    ms = 1000 * US
    passes = [106 * ms, 112 * ms, 118 * ms]
    operators = [Slice(TRAINING_THREAD, (101 + 6 * n) * ms, (102 + 6 * n) * ms, "aten::mm", 7 + n) for n in range(3)]
    kernels = [Slice("GPU 0 stream 7", (102 + 31 * n) * ms, (133 + 31 * n) * ms, "nvjet", 7 + n) for n in range(3)]
    assert pass_ends(passes, Recorded(operators, kernels, [])) == [133 * ms, 164 * ms, 195 * ms]
    assert pass_ends(passes, Recorded(operators, [], [])) == passes


def test_kernels_of_a_pass_that_the_gpu_did_before_its_end_do_not_lengthen_it() -> None:
    """The second kernel has no operator: it belongs to the pass in which it ran."""
    kernels = [Slice("GPU 0 stream 7", 10, 20, "nvjet", 1), Slice("GPU 0 stream 7", 110, 120, "Memcpy", 0)]
    operators = [Slice(TRAINING_THREAD, 5, 6, "aten::mm", 1)]
    assert pass_ends([100, 200], Recorded(operators, kernels, [])) == [100, 200]
