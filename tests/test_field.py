"""Test which verdicts benchmarks/field.py accepts, whichever tool they come from."""

from __future__ import annotations

import pytest

from benchmarks.field_faults import NPROC, drawn

CASES = {scenario.name: scenario for scenario in drawn(5)}


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "optimizer"])
def test_a_verdict_names_the_rank_and_the_phase_in_either_tool_s_words(phase: str) -> None:
    scenario = CASES[f"slow {phase}"]
    (rank,) = scenario.ranks
    other = (rank + 1) % NPROC
    assert scenario.is_right(f"rank {rank} is slow: +14.3 ms {phase} since step 40; 1.29x faster if fixed")
    assert scenario.is_right(f"COMPUTE STRAGGLER / R{rank}/N0 spent 30 ms in {phase.title()}; R{other}/N0 spent 12 ms")
    assert not scenario.is_right(f"rank {other} is slow: +14.3 ms {phase}; rank {rank} waits")
    assert not scenario.is_right(f"rank {rank} is slow: +14.3 ms other since step 40")
    assert not scenario.is_right("NO CLEAR PERFORMANCE BOTTLENECK")


def test_two_late_ranks_are_both_named() -> None:
    scenario = CASES["two slow ranks"]
    first, second = scenario.ranks
    assert scenario.is_right(f"ranks {first} and {second} are slow: +20 ms forward")
    assert not scenario.is_right(f"rank {first} is slow: +20 ms forward")


def test_a_clean_run_blames_nobody() -> None:
    clean = CASES["clean"]
    assert clean.is_right("done: 160 steps in 20 s")
    assert clean.is_right("NO CLEAR PERFORMANCE BOTTLENECK / No data-pipeline or rank-skew bottleneck was detected")
    assert not clean.is_right("rank 2 is slow: +3 ms backward")
    assert not clean.is_right("COMPUTE STRAGGLER (WARNING)")


def test_the_same_seed_draws_the_same_faults() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
