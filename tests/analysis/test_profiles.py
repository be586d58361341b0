"""Operators of profiled ranks side by side, and the text of a profile."""

from __future__ import annotations

import pytest

from ddpmon.analysis.processes.peak_flops import peak_flops
from ddpmon.analysis.processes.profile_text import MFU, chosen_ranks, profile_lines
from ddpmon.analysis.processes.profiles import side_by_side, why_not_profiled
from ddpmon.errors import UsageError
from ddpmon.messages import MAX_PROFILED_RANKS, Operator, Profile, ProfiledRank, ProfileOutcome, ProfileView

FORWARD, BACKWARD = 1, 2


def profile(rank: int, *operators: Operator, steps: int = 2) -> Profile:
    return Profile(rank, 100 + rank, ProfileOutcome.PROFILED, steps=steps, span_us=1, operators=list(operators))


def test_the_largest_difference_comes_first_per_step_and_what_waits_comes_last() -> None:
    slow = profile(
        2,
        Operator("aten::mm", FORWARD, 8, 24_000, 0),
        Operator("aten::addmm", FORWARD, 4, 90_000, 0),
        Operator("sgemm", BACKWARD, 2, 0, 8_000),
    )
    other = profile(
        0,
        Operator("aten::addmm", FORWARD, 4, 90_200, 0),
        Operator("c10d::allreduce_", BACKWARD, 2, 200_000, 0),
        Operator("sgemm", BACKWARD, 2, 0, 2_000),
    )
    rows = side_by_side([slow, other])
    assert [(row.name, row.phase, row.difference_ms) for row in rows] == [
        ("aten::mm", "forward", 12.0),
        ("sgemm", "backward", 3.0),
        ("aten::addmm", "forward", pytest.approx(0.1)),
        ("c10d::allreduce_", "backward", 100.0),
    ]
    assert [row.waits for row in rows] == [False, False, False, True]
    assert (rows[0].self_ms, rows[0].calls) == ([12.0, 0.0], [4.0, 0.0])
    assert (rows[1].self_ms, rows[1].device_ms) == ([0.0, 0.0], [4.0, 1.0])


def test_one_profile_alone_begins_with_what_takes_longest() -> None:
    rows = side_by_side([profile(0, Operator("a", FORWARD, 1, 10, 0), Operator("b", FORWARD, 1, 20, 0))])
    assert [row.name for row in rows] == ["b", "a"]


def test_the_text_says_what_it_cost_and_fits_a_small_terminal() -> None:
    rows = side_by_side([profile(2, Operator("a" * 100, FORWARD, 1, 10_000, 0)), profile(0)])
    ranks = [
        ProfiledRank(2, answered=True, first_step=40, last_step=45, steps=5, step_ms=34.06, usual_ms=30, cost_ms=85.2),
        ProfiledRank(0, answered=True, first_step=41, last_step=46, steps=5, step_ms=34.0, usual_ms=30.0, cost_ms=80.0),
    ]
    lines = profile_lines(ProfileView(1, ranks, False, rows, "/runs/x/profiles/step-40-1.json"), 10)
    assert lines[0] == "rank 2: 5 steps of 34.1 ms under the profiler, 30.0 ms before; 85 ms to start and end it"
    assert "Means and findings leave out steps 40 to 46, in which a profiler started, ran or ended." in lines
    assert "trace: /runs/x/profiles/step-40-1.json (for ui.perfetto.dev)" in lines
    assert all(len(line) <= 80 for line in lines[-2:])


def test_each_rank_without_a_profile_has_one_line() -> None:
    own = why_not_profiled(Profile(1, 5, ProfileOutcome.OWN_PROFILER), 20.0)
    late = why_not_profiled(Profile(1, 5, ProfileOutcome.NO_STEP), 20.0)
    failed = why_not_profiled(Profile(1, 5, ProfileOutcome.FAILED, "RuntimeError: no"), 20.0)
    assert own == "rank 1: the script uses torch.profiler itself; ddpmon left that alone and profiled nothing"
    assert late.startswith("rank 1 finished no optimizer step in 20 s")
    assert failed == "rank 1: torch's profiler failed: RuntimeError: no"
    view = ProfileView(1, [ProfiledRank(1, why=own), ProfiledRank(0, steps=5)], True, [])
    assert profile_lines(view, 10) == [own, "rank 0: waiting for the end of 5 steps"]


def test_ranks_are_read_from_a_list_and_what_is_none_is_refused() -> None:
    assert chosen_ranks(" 2, 0") == [2, 0]
    assert chosen_ranks(" ") == []
    for wrong in ("x", "1,", "-1", "9" * 12):
        with pytest.raises(UsageError, match="is no list of ranks"):
            chosen_ranks(wrong)
    with pytest.raises(UsageError, match="17 ranks are too many"):
        chosen_ranks(",".join(map(str, range(MAX_PROFILED_RANKS + 1))))


def test_the_text_of_counted_operations_has_the_mfu_and_no_trace():
    counted = ProfiledRank(
        0, answered=True, first_step=4, last_step=5, steps=1, usual_ms=80.0, flops=2.5e12, peak_flops=312e12
    )
    share, steps, more = profile_lines(ProfileView(1, [counted], waits=False, rows=[]), 15)
    assert share == "rank 0: 2.50 TFLOP in a step, at 80.0 ms a step an MFU of 10% of 312 TFLOP/s"
    assert steps.startswith("Means and findings leave out steps 4 to 5,")
    assert more == MFU


def test_parts_of_one_name_have_their_own_peak() -> None:
    names = "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA T4"
    assert [peak_flops(name) for name in names] == [989e12, 756e12, 989e12, 835e12, None]
