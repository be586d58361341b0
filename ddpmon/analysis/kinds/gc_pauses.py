"""Python's garbage collection holds all ranks back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import RELEVANT, lasting_cost
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.steps.recurrence import goes_on, recurring_mean
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding

COLLECTS_MS = 0.1
"""Milliseconds of a step from which on it counts as one with a collection: young generations take less everywhere."""
LARGE = 0.5
"""Share of the second-longest collection from which on one is large: full collections, not those of the young."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Name the ranks that collect most, while collections go on.

    The others wait for whoever collects, so that in each step the longest pause counts.
    """
    world, gc_ms = moment.world, moment.world.gc_ms
    found = lasting_cost(moment, KIND, gc_ms.max(axis=1), RELEVANT)
    stays = moment.held_one(KIND) is not None
    if found is None or not _goes_on(gc_ms.max(axis=1), RELEVANT.asked(stays) * found.step_ms):
        return
    cost, means = found.cost_ms, world.mean("gc_ms")
    longest, same_time = float(gc_ms.max()), cost - float(means.mean()) if len(world.ranks) > 1 else 0.0
    lead = f"Python's garbage collection costs {cost:.1f} ms a step:"
    rarer = " All ranks collect at once already: larger numbers for gc.set_threshold make it rarer."
    if EXPLAINS.reached(same_time / cost):
        rarer = (
            f" gc.disable() and a gc.collect() on all ranks at once every so many steps save {same_time:.1f} ms a step"
            " of waiting for each other."
        )
    yield KIND.finding(
        "warn",
        Words(
            fitting(f"{lead} {found.share:.0%} of it", f", up to {longest:.0f} ms at once"),
            f"gc.freeze() after the model is built takes what lives forever out of it.{rarer}",
            lead=lead,
        ),
        [world.ranks[column] for column in np.flatnonzero(means > EXPLAINS.enter * means.max()).tolist()],
        evidence={
            "gc_ms": cost,
            "share": found.share,
            "longest_ms": longest,
            "steps_share": float((gc_ms > COLLECTS_MS).any(axis=1).mean()),
            "same_time_ms": same_time,
        },
        since_step=found.since,
        cost_ms=cost,
    )


def _goes_on(each_ms: Floats, least_ms: float) -> bool:
    """Return whether collections have not stopped.

    Args:
        each_ms: [S] The longest time that a rank collects in each step.
        least_ms: Mean of a step from which on they matter.

    """
    large = np.flatnonzero(each_ms >= LARGE * np.partition(each_ms, -2)[-2])
    return goes_on(large, len(each_ms) - 1) or bool(recurring_mean(each_ms[large[-1] + 1 :]) >= least_ms)


KIND = Kind(
    "gc_pauses",
    gone="garbage collection no longer holds the step back",
    detect=detect,
    fewest_steps=FEWEST,
    by_cost=True,
    slows="garbage collection",
)
