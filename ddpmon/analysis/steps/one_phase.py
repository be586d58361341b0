"""Excess over the peers in one phase of the step alone.

A rank's own time strays as all its phases do together: one that reads its data late shows in its data long before it
shows in a sum in which forward and backward fight for the cores. And what makes all phases of a rank longer together,
as clocks that rise and fall do, is taken out by what its other phases show of it (a control variate: Lavenberg and
Welch, 1981).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, median, running_total
from ddpmon.analysis.statistics.excess import Chance, chance, over_peers, some_of, steady
from ddpmon.analysis.statistics.wandering import FEW
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

IN_ONE_PHASE = Threshold(
    1.25,
    of="times what is asked for in the own time that one phase must show alone",
    why="A judgement: five more series stray, each its way. A delay of 10% of a step, 12% of the own time, is found.",
)
MOST = 8
"""The first so many columns are examined: where noise hides ranks in their own time, it hides few."""
BLOCK, APART, FEWEST_BLOCKS = 8, 2, 12
"""Steps over which single steps' noise is averaged away, blocks from one that is compared to the next, and as many as
tell how phases go together."""
ALIKE = 0.5
"""Correlation from which on what the other phases show takes more noise out than it brings in."""
LATELY = (12, 48, 192, 0)
"""Last steps over which a phase must have an excess worth examining, each four times the one before; 0: all."""


@dataclass(frozen=True)
class PhaseExcess:
    """What `columns` take longer in one phase than the median of their peers."""

    columns: list[int]
    """Of the world; what follows has them first, then some of their peers."""
    excess_ms: Floats
    """[S, C]"""
    smooth_ms: Floats
    """[S - 4, C] Its running median of five."""
    total_ms: Floats
    """[S - 3, C] Running total of that."""
    noise: Chance
    least_ms: float
    """That is asked for."""


def in_each_phase(world: World, columns: Sequence[int], least_ms: float) -> Iterator[PhaseExcess]:
    """For each phase in which one of these columns lately has enough over its peers on average.

    least_ms: that would be enough in the own time.
    """
    if not columns:
        return
    columns = list(columns[:MOST])
    chosen = [*columns, *some_of(np.delete(np.arange(len(world.ranks)), columns)).tolist()]
    own = world.own_ms[:, chosen]
    for phase in range(len(OWN_PHASES)):
        values = world.phases_ms[:, chosen, phase]
        excess = over_peers(values)
        rest = over_peers(own - values)
        shared = _shared(excess, rest)
        excess -= shared * rest
        least = least_ms * IN_ONE_PHASE.enter
        if max(excess[-steps:, : len(columns)].mean(axis=0).max() for steps in LATELY) >= least:
            smooth = steady(excess)
            total = running_total(smooth)
            yield PhaseExcess(columns, excess, smooth, total, chance(total, world.usual_ms), least)


def _shared(excess: Floats, rest: Floats) -> float:
    """How much a phase of a typical rank rises with the rest of its step, over its peers' from block to block.

    From differences: a change that lasts, of a rank that begins to be late, is one of many.
    """
    if len(rest) < FEWEST_BLOCKS * BLOCK or rest.shape[1] <= FEW:
        return 0.0
    count = len(rest) // BLOCK
    of_phase, of_rest = (
        np.diff(values[: count * BLOCK].reshape(count, BLOCK, -1).mean(axis=1)[::APART], axis=0)
        for values in (excess, rest)
    )
    together = (of_phase * of_rest).sum(axis=0)
    of_phase, of_rest = (np.square(each).sum(axis=0) + 1e-12 for each in (of_phase, of_rest))
    if median(together / np.sqrt(of_phase * of_rest)) < ALIKE:
        return 0.0
    return median(together / of_rest)
