"""Sums of torch's profiler records: the time outside of operators, and records of the profiler itself."""

from __future__ import annotations

from ddpmon.analysis.processes.profiles import side_by_side
from ddpmon.messages import OUTSIDE_OPERATORS, SYNC_KINDS, WAITS_FOR_RANKS, Profile, ProfileOutcome
from ddpmon.probe.operators import TRAINING_THREAD, Phases, Recorded, Slice, Totals, pass_ends
from ddpmon.probe.records import OTHER, RawSync

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
    totals.add(Recorded(operators, [], []), [], lambda: None)
    assert {(one.name, one.phase): one.self_us for one in totals.operators()} == {
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
    totals.add(Recorded(operators, [], []), [], lambda: None)
    assert {(one.name, one.phase): one.self_us for one in totals.operators() if one.name != OUTSIDE_OPERATORS} == {
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


def test_a_wait_inside_a_modules_forward_is_a_wait_and_no_time_of_that_module() -> None:
    """DDP.forward broadcasts buffers, a later module all-reduces, and the gradients' wait begins inside an operator."""
    phases = Phases([(0, FORWARD), (400 * US, BACKWARD)], 0, 1000 * US)
    operators = [
        Slice(TRAINING_THREAD, 0, 390 * US, "DistributedDataParallel.forward", 1),
        Slice(TRAINING_THREAD, 20 * US, 30 * US, "c10d::broadcast_", 2),
        Slice(TRAINING_THREAD, 300 * US, 350 * US, "aten::addmm", 3),
        Slice(TRAINING_THREAD, 400 * US, 600 * US, "autograd::engine::evaluate_function: AddmmBackward0", 4),
    ]
    syncs = [
        RawSync(SYNC_KINDS.index("buffers"), 10 * US, 210 * US, 8),
        RawSync(SYNC_KINDS.index("gradients"), 590 * US, 900 * US, 8),
    ]
    totals = Totals(phases)
    totals.add(Recorded(operators, [], []), syncs, lambda: None)
    made = totals.operators()
    assert {(one.name, one.phase): one.self_us for one in made} == {
        ("DistributedDataParallel.forward", FORWARD): 140,
        (f"{WAITS_FOR_RANKS}: buffers)", FORWARD): 190,
        ("c10d::broadcast_", FORWARD): 10,
        ("aten::addmm", FORWARD): 50,
        ("autograd::engine::evaluate_function: AddmmBackward0", BACKWARD): 190,
        (f"{WAITS_FOR_RANKS}: gradients)", BACKWARD): 310,
        (OUTSIDE_OPERATORS, FORWARD): 10,
        (OUTSIDE_OPERATORS, BACKWARD): 100,
    }
    profiles = [
        Profile(rank, 1, ProfileOutcome.PROFILED, steps=1, span_us=1000, operators=made if rank else [])
        for rank in range(2)
    ]
    rows = side_by_side(profiles)
    assert rows[0].name == "autograd::engine::evaluate_function: AddmmBackward0"
    assert {row.name for row in rows if row.waits} == {
        f"{WAITS_FOR_RANKS}: buffers)", f"{WAITS_FOR_RANKS}: gradients)", "c10d::broadcast_",
    }  # fmt: skip
