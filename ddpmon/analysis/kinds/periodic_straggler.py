"""A rank is late every so many steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.own_time import SOME_STEPS, WORTH, caveat, forward_may_be
from ddpmon.analysis.statistics.arrays import medians
from ddpmon.analysis.steps.rhythms import FALSE_ALARMS, REPORTED, Rhythm, rhythms
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting
from ddpmon.messages import OWN_PHASES, Finding

WHAT = {
    "other": " (a checkpoint, logging, an evaluation)",
    "data": " (a new file or shard, workers that begin anew)",
    "optimizer": " (what is hooked to its optimizer)",
}
LARGE = Threshold(
    1.1,
    of="times as fast without the rhythm, from which on it need not be plainer where more ranks could have one",
    why="What costs much is worth five long steps' evidence. Skewed bursts made a rhythm of 1.03 on one of eight ranks"
    " in ten hours (benchmarks/calibration_hunt.py); none of noise's was as large.",
)


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
    may_be_forward: bool = for_words()


def detect(moment: Moment) -> Iterator[Detection[PeriodicStraggler]]:
    """One for each rank with a rhythm that is worth telling."""
    world = moment.longer or moment.world
    columns = {rank: column for column, rank in enumerate(world.ranks)}
    held = {columns[f.ranks[0]]: f for f in moment.held(KIND) if f.ranks[0] in columns}
    regular = rhythms(world, held)
    moment.rhythmic = [rhythm.column for rhythm in regular]
    for rhythm in regular:
        yield from _worth_telling(moment, world, rhythm, held.get(rhythm.column))


def _worth_telling(
    moment: Moment, world: World, rhythm: Rhythm, held: Finding | None
) -> Iterator[Detection[PeriodicStraggler]]:
    column = rhythm.column
    others = np.delete(np.arange(len(world.ranks)), column)
    over = world.phases_ms[:, column] - medians(world.phases_ms[:, others])
    phase = OWN_PHASES[int((np.median(over[rhythm.at], axis=0) - np.median(over, axis=0)).argmax())]
    mended = world.own_ms[:, column].copy()
    mended[rhythm.at] -= rhythm.over_ms
    slowest = np.maximum(world.own_ms[:, others].max(axis=1), mended)
    begun = int(rhythm.at[0])
    real = world.step_ms[begun:]
    simulated = float((real - world.slowest_ms[begun:] + slowest[begun:]).sum())
    factor = float(real.sum()) / simulated if simulated > 0 else 1.0
    if not REPORTED.reached(factor, held=held is not None):
        return
    plain = rhythm.by_chance * len(world.ranks) < FALSE_ALARMS.enter
    if held is None and not plain and not LARGE.reached(factor):
        return
    worth = WORTH.reached(factor, held=held is not None and held.severity == "warn")
    yield Detection(
        KIND,
        "warn" if worth else "info",
        PeriodicStraggler(
            every=rhythm.every,
            at_step=int(world.step[rhythm.at[-1]]),
            over_ms=rhythm.over_ms,
            times=len(rhythm.at),
            gain=factor,
            may_be_forward=forward_may_be(phase, moment.evidence),
        ),
        [world.ranks[column]],
        phase,
        held.since_step if held and held.since_step is not None else int(world.step[begun]),
        cost_ms=float(real.mean()) * (1 - 1 / factor),
    )


def words(detection: Detection[PeriodicStraggler]) -> Words:
    """How often, by how much, and what to examine."""
    facts, rank, phase = detection.facts, detection.ranks[0], detection.phase or ""
    advice = (
        f"Look at what rank {rank} does every {facts.every} steps in {phase}"
        f"{WHAT.get(phase, '')}: {facts.over_ms:.0f} ms each time that all others wait. Do it less often, or in a"
        " thread beside training. What it is was not measured."
    )
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
