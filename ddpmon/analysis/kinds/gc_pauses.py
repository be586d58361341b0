"""Python's garbage collection holds all ranks back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, SHORTEST_MS, STAYS, mean_step_ms, since
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.steps.recurrence import goes_on, recurring_mean
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting

SHARE = Threshold(
    0.03,
    of="share of a step in which the rank that collects longest collects garbage",
    why="A judgement: little, but a line (gc.freeze()) is all that mending it takes.",
    keeps=STAYS,
)
NAMED = Threshold(
    0.5,
    of="times what the rank that collects longest collects, from which on a rank is named",
    why="A judgement: what it calls for is the same script on every rank; those far below need not be listed.",
)
AT_ONCE = Threshold(
    0.25,
    of="share of the cost that goes if all ranks collect at the same time, for that to be advised",
    why="A judgement: it changes the script's loop, so it must save more than a rest that noise explains.",
)
COLLECTS_MS = 0.1
"""Milliseconds of a step from which on it counts as one with a collection: young generations take less everywhere."""
LARGE = 0.5
"""Share of the second-longest collection from which on one is large: full collections, not those of the young."""


@dataclass(frozen=True)
class GcPauses:
    """What it costs: the others wait for whoever collects, so that in each step the longest pause counts."""

    gc_ms: float
    share: float
    """Of a step."""
    longest_ms: float
    steps_share: float
    """Of the steps in which any rank collects."""
    same_time_ms: float
    """Of gc_ms: what is left out if all ranks collect at the same time."""


def detect(moment: Moment) -> Iterator[Detection[GcPauses]]:
    """Name the ranks that collect most, while collections go on."""
    world, held = moment.world, moment.held_one(KIND)
    step = mean_step_ms(world)
    each_ms = world.gc_ms.max(axis=1)
    cost, least = float(each_ms.mean()), step * SHARE.asked(held is not None)
    if step < SHORTEST_MS.enter or cost < least or not _goes_on(each_ms, least):
        return
    means = world.mean("gc_ms")
    facts = GcPauses(
        gc_ms=cost,
        share=cost / step,
        longest_ms=float(world.gc_ms.max()),
        steps_share=float((world.gc_ms > COLLECTS_MS).any(axis=1).mean()),
        same_time_ms=cost - float(means.mean()) if len(world.ranks) > 1 else 0.0,
    )
    ranks = [world.ranks[column] for column in np.flatnonzero(means > NAMED.enter * means.max()).tolist()]
    yield Detection(KIND, "warn", facts, ranks, None, since(world, held), cost_ms=cost)


def _goes_on(each_ms: Floats, least_ms: float) -> bool:
    """Return whether collections cost as much in more than one step, and have not stopped.

    Args:
        each_ms: [S] The longest time that a rank collects in each step.
        least_ms: Mean of a step from which on they matter.

    """
    if recurring_mean(each_ms) < least_ms:
        return False
    large = np.flatnonzero(each_ms >= LARGE * np.partition(each_ms, -2)[-2])
    return goes_on(large, len(each_ms) - 1) or bool(recurring_mean(each_ms[large[-1] + 1 :]) >= least_ms)


def words(detection: Detection[GcPauses]) -> Words:
    """What it costs, and how to make it rarer."""
    facts = detection.facts
    lead = f"Python's garbage collection costs {facts.gc_ms:.1f} ms a step:"
    return Words(
        fitting(f"{lead} {facts.share:.0%} of it", f", up to {facts.longest_ms:.0f} ms at once"),
        "gc.freeze() after the model is built takes what lives forever out of it."
        + (
            f" gc.disable() and a gc.collect() on all ranks at once every so many steps save {facts.same_time_ms:.1f}"
            " ms a step of waiting for each other."
            if facts.same_time_ms >= AT_ONCE.enter * facts.gc_ms
            else " All ranks collect at once already: larger numbers for gc.set_threshold make it rarer."
        ),
        lead=lead,
    )


KIND = Kind(
    "gc_pauses",
    subject="world",
    gone="garbage collection no longer holds the step back",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
    slows="garbage collection",
)
