"""A rank that is the last in each of a few steps, by so much that few of them suffice as evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ddpmon.analysis.statistics.arrays import median
from ddpmon.analysis.statistics.excess import deviations, noisier
from ddpmon.analysis.steps.stretches import EDGE, LateStretch
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

FEWEST_CERTAIN = Threshold(
    6,
    of="last steps in all of which the same rank is the last",
    why="By chance one of two ranks is in 1 of 32 runs' first six steps, so that it must be late by `CERTAIN` as well.",
)
CERTAIN = Threshold(
    6.0,
    of="times its peers' own time, over the number of those steps, by which it exceeds theirs in each",
    why="Six steps of twice the peers' time, or 24 of a quarter more: no noise of benchmarks/calibration.py made it.",
)
CERTAIN_STEPS = (6, 8, 12, 16, 24)
"""Last steps of which each may show for certain who is late."""
MANY = 3
"""With more ranks than this the median is a fair estimate of what is usual."""


def certain(
    world: World, was_late: Mapping[int, int], skip: Collection[int], least_ms: float, *, in_noise: bool = False
) -> list[LateStretch]:
    """The rank that is the last in each of the last steps, each time by so much that few steps suffice.

    was_late: by column that was late at the last judgement, the index of its first step. least_ms: by so much at
    least. in_noise: there are steps enough to estimate it; where it stays alike for long, many steps count as one.
    """
    last = world.own_ms[-CERTAIN_STEPS[-1] :].argmax(axis=1)
    column = int(last[-1])
    others = np.flatnonzero(last != column)
    steps = len(last) - (int(others[-1]) + 1 if len(others) else 0)
    excess = world.excess_ms[:, column]
    over = excess / np.maximum(world.typical_ms if len(world.ranks) > 2 else world.own_ms.min(axis=1), 1e-9)
    shown = [n for n in CERTAIN_STEPS if n <= steps and over[-n:].min() >= CERTAIN.enter / n]
    # Of few ranks a late one is most of the noise.
    if shown and in_noise and column not in was_late and len(world.ranks) > MANY:
        noise, usual, beyond = world.noise, world.restless, deviations(len(world.ranks))
        bounds = {n: noise.of_a_rank(column, noisier(excess[-n:], usual)).bound_ms(n, beyond)[0] for n in shown}
        shown = [n for n in shown if excess[-n:].mean() >= bounds[n]]
    if not shown or column in skip or median(excess[-steps:]) < least_ms:
        return []
    short = np.flatnonzero(over < over[-shown[-1] :].min() / 2)
    begin = int(short[-1]) + 1 if len(short) else 0
    if column in was_late:
        begin = max(0, was_late[column])
    return [LateStretch(column, begin, len(excess) - 1, median(excess[begin:]), begin <= EDGE)]
