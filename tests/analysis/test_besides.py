"""Test that work besides training is reported where its share is large enough."""

from __future__ import annotations

import pytest

from ddpmon.analysis.steps.pauses import Pause, Times
from ddpmon.messages import CHECKPOINT, EVALUATION, PAUSE, PAUSES, STARTING_WORKERS, Loader, Setup
from tests.findings import of_kinds


def times(
    kind: int, seconds: list[float], ranks: list[tuple[int, ...]], training_s: float = 60.0, every: int = 50
) -> Times:
    told = Times(last=every * len(seconds) + 10, training_s=training_s)
    told.paused_s[kind], told.counts[kind] = sum(seconds), len(seconds)
    phase = "other" if kind == PAUSE else ""
    told.latest = [
        Pause(PAUSES[kind], every * (place + 1), each, ranks[place % len(ranks)], phase)
        for place, each in enumerate(seconds)
    ]
    return told


def test_an_evaluation_that_takes_long_is_a_hint_that_tells_who_does_it() -> None:
    (finding,) = of_kinds("pauses", times=times(EVALUATION, [10.0] * 4, [(0,)]), world_size=4)
    assert (finding.kind, finding.severity, finding.ranks) == ("pauses", "info", [0])
    assert finding.text == "evaluation on rank 0 alone takes 40% of the time since the first step"
    (finding,) = of_kinds("pauses", times=times(EVALUATION, [10.0] * 4, [(0, 1, 2, 3)]), world_size=4)
    assert finding.ranks == []
    assert finding.text == "evaluation takes 40% of the time since the first step: 4 times, 40 s"


def test_what_takes_little_is_not_told() -> None:
    assert of_kinds("pauses", times=times(CHECKPOINT, [1.0], [(0,)]), world_size=4) == []
    assert of_kinds("pauses", times=Times(), world_size=4) == []
    refused = times(CHECKPOINT, [0.2], [(0,)], training_s=0.0)
    assert of_kinds("pauses", times=refused, world_size=4) == [], "without any training there is no share of it"


def test_a_rank_that_keeps_pausing_for_something_unknown_is_a_fault() -> None:
    (finding,) = of_kinds("pauses", times=times(PAUSE, [2.0] * 10, [(2,)]), world_size=4)
    assert (finding.severity, finding.ranks, finding.phase) == ("warn", [2], "other")
    assert finding.text == "rank 2 pauses for 2.0 s every 50 steps, in other: 25% of the time"
    assert finding.cost_ms == pytest.approx(20_000 / 510)


def test_pauses_that_came_once_or_have_stopped_are_no_pattern() -> None:
    for kind in (CHECKPOINT, EVALUATION, PAUSE):
        assert of_kinds("pauses", times=times(kind, [30.0], [(2,)]), world_size=4) == []
        told = times(kind, [8.0] * 4, [(2,)])
        told.last = 200 + 99
        assert len(of_kinds("pauses", times=told, world_size=4)) == 1
        told.last = 200 + 101
        assert of_kinds("pauses", times=told, world_size=4) == []


def test_pauses_now_here_now_there_are_nobodys_fault() -> None:
    assert of_kinds("pauses", times=times(PAUSE, [2.0] * 10, [(2,), (0,), (1,)]), world_size=4) == []
    assert of_kinds("pauses", times=times(PAUSE, [8.0] * 2, [(2,)]), world_size=4) == [], "two are no habit"


def test_pauses_that_were_forgotten_for_later_ones_are_no_failure() -> None:
    """Evaluations by the dozen have taken their places."""
    for kind in (PAUSE, EVALUATION):
        for kept in range(3):
            told = times(kind, [2.0] * 10, [(2,)])
            told.latest = told.latest[len(told.latest) - kept :]
            assert len(of_kinds("pauses", times=told, world_size=4)) == (kind == EVALUATION)


def test_workers_that_start_anew_each_epoch_are_a_reason_to_keep_them() -> None:
    (finding,) = of_kinds("pauses", times=times(STARTING_WORKERS, [14.0] * 4, [(0, 1)]), world_size=2)
    assert (finding.severity, finding.ranks, finding.since_step) == ("warn", [], 50)
    assert finding.text == "each start of DataLoader workers takes 14 s: 48% of the time, 4 times"
    assert "persistent_workers=True" in finding.advice
    assert finding.advice.endswith("only once.")
    assert "num_workers" not in finding.advice
    kept = {rank: Setup([Loader(2, persistent=True)]) for rank in (0, 1)}
    (finding,) = of_kinds("pauses", times=times(STARTING_WORKERS, [14.0] * 4, [(0, 1)]), world_size=2, setups=kept)
    assert "makes a new DataLoader for each epoch" in finding.advice
    assert finding.advice.endswith("only once.")
    (short,) = of_kinds("pauses", times=times(STARTING_WORKERS, [0.5] * 20, [(0, 1)]), world_size=2)
    assert short.severity == "info"
    assert of_kinds("pauses", times=times(STARTING_WORKERS, [14.0], [(0, 1)]), world_size=2) == []
