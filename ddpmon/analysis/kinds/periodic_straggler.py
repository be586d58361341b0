"""A rank is late every so many steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.late import severity
from ddpmon.analysis.kinds.late_ranks import LateRanks, late_ranks
from ddpmon.analysis.kinds.own_time import SOME_STEPS, caveat, forward_may_be
from ddpmon.analysis.statistics.arrays import medians
from ddpmon.analysis.words import fitting

WHAT = {
    "other": " (a checkpoint, logging, an evaluation)",
    "data": " (a new file or shard, workers that begin anew)",
    "optimizer": " (what is hooked to its optimizer)",
}
SHORT_STEPS = 2
"""Steps of a period that are slow, at most: more are a burst."""


@dataclass(frozen=True)
class PeriodicStraggler:
    """How often, and by how much; gain: times as fast without."""

    every: int
    """Steps."""
    at_step: int
    """The last time."""
    over_ms: float
    """Each time."""
    times: int
    gain: float
    share: float
    """Of its steps, that are slow."""
    since_interval: list[int] | None = None
    """95% interval of the first step, where that is not exact."""
    may_be_forward: bool = for_words(default=False)


def detect(moment: Moment) -> Iterator[Detection[PeriodicStraggler]]:
    """One for each rank that is slow in a step or two of every so many."""
    for one in late_ranks(moment):
        if one.slowdown.scope == "rank" and is_rhythm(one):
            yield _detected(one)


def is_rhythm(one: LateRanks) -> bool:
    """Return whether single steps are slow, every so many."""
    return one.slowdown.pattern == "steps" and one.slow_steps <= SHORT_STEPS


def _detected(one: LateRanks) -> Detection[PeriodicStraggler]:
    told, held = one.slowdown, one.held(KIND)
    over = one.part.own_ms[:, one.columns[0]] - medians(one.part.own_ms[:, one.some])
    at = np.flatnonzero(over >= told.excess_ms / 2)
    facts = PeriodicStraggler(
        every=round(told.every or 0),
        at_step=int(one.part.step[at[-1]]) if len(at) else one.since,
        over_ms=told.excess_ms,
        times=len(at),
        gain=one.alone,
        share=round(told.share, 4),
        since_interval=None if told.is_exact else list(told.since_within),
        may_be_forward=forward_may_be(one.phase, one.moment.evidence),
    )
    worth = severity(one, held)
    return Detection(KIND, worth, facts, one.ranks, one.phase, one.since, one.until, one.cost_ms())


def words(detection: Detection[PeriodicStraggler]) -> Words:
    """How often, by how much, and what to examine."""
    facts, rank, phase = detection.facts, detection.ranks[0], detection.phase or ""
    advice = (
        f"Look at what rank {rank} does every {facts.every} steps in {phase}"
        f"{WHAT.get(phase, '')}: {facts.over_ms:.0f} ms each time that all others wait. Do it less often, or in a"
        " thread beside training. What it is was not measured."
    )
    if detection.until_step is not None:
        lead = f"rank {rank} was slow every {facts.every} steps until step {detection.until_step:,}:"
        return Words(fitting(f"{lead} {facts.over_ms:+.0f} ms {phase}"), caveat(facts, advice), lead=lead)
    return Words(
        fitting(
            f"rank {rank} takes {facts.over_ms:+.0f} ms {phase} every {facts.every} steps",
            f"; {facts.gain:.2f}x if not",
            f", since step {detection.since_step:,}",
        ),
        caveat(facts, advice),
    )


KIND = Kind(
    "periodic_straggler",
    subject="rank",
    gone="rank {ranks} keeps its rhythm no longer",
    words=words,
    detect=detect,
    fewest_steps=SOME_STEPS,
    by_cost=True,
    slows="rank {rank}'s pauses",
)
