"""A short piece of benchmarks/scenarios.py: made-up runs are played through the hub's store, and scored."""

import dataclasses
import re
from functools import partial

import pytest

from benchmarks.scenarios import SCENARIOS, Play, score


def played(name, **changes):
    shown, truth, draft = Play(dataclasses.replace(SCENARIOS[name], **changes), seed=3).played()
    return shown, truth, score(name, 3, shown, truth, draft.well_step_ms(), takes_turns=False)


def test_a_late_rank_is_seen_by_the_hub_and_in_the_report():
    shown, truth, scored = played("since, 25%", ranks=4, steps=300)
    assert truth.since == 141
    (live,) = shown.moments[-1].findings
    (reported,) = shown.reported
    assert live.ranks == reported.ranks == truth.ranks
    assert live.phase == truth.phase
    assert scored.right
    assert scored.since_off <= 5
    assert scored.told_after < 100
    assert scored.gain_off < 0.05
    assert scored.cost_share == pytest.approx(0.1, abs=0.03)
    assert shown.ended.state == "done"
    assert shown.report["steps"]["count"] == 300


def test_a_phase_that_takes_many_times_as_long_is_told_in_ms():
    other = SCENARIOS["all ranks: backward +30%"].make
    shown, _, _ = played(
        "all ranks: backward +30%", make=partial(other, phase="other", times=100.0), ranks=1, steps=400
    )
    (live,) = shown.moments[-1].findings
    assert re.match(r"rank 0 is slower: \+\d+\.\d ms other since step \d+; ", live.text)
    assert live.advice.startswith("Look for a change at that step in the rest of the training loop"), "no other rank"


def test_a_run_without_a_fault_has_a_quiet_score():
    shown, _, scored = played("no fault: evaluations", ranks=2, steps=330)
    assert scored.right
    assert scored.false == 0
    assert scored.agree == []
    assert shown.report["time"]["pauses"]["evaluation"]["count"] == 1, "it pauses as it was told"
