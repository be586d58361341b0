"""Excess over the peers in one phase of the step alone.

A rank's own time strays as all its phases do together: one that reads its data late shows in its data long before it
shows in a sum in which forward and backward fight for the cores. And what makes all phases of a rank longer together,
as clocks that rise and fall do, is taken out by what its other phases show of it (a control variate: Lavenberg and
Welch, 1981).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, medians, running_total
from ddpmon.analysis.statistics.excess import Chance, chance, over_peers, restless, some_of, steady
from ddpmon.analysis.statistics.wandering import FEW
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

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
    usual_ms: float
    """A typical own time."""
    least_ms: float
    """That is asked for."""

    @cached_property
    def noise(self) -> Chance:
        """How far chance alone carries means of these."""
        return chance(self.total_ms, self.usual_ms)

    @cached_property
    def restless(self) -> float:
        """How much neighbouring steps differ as a rule."""
        return restless(self.excess_ms)


def in_each_phase(world: World, columns: Sequence[int], least_ms: float) -> Iterator[PhaseExcess]:
    """For each phase in which one of these columns lately has enough over its peers on average.

    least_ms: that would be enough in the own time.
    """
    if not columns:
        return
    columns = list(columns[:MOST])
    chosen = [*columns, *some_of(np.delete(np.arange(len(world.ranks)), columns)).tolist()]
    excess, rest = _of_phases(world, chosen)
    excess -= _shared(*_telling(world, excess, rest))[:, None, None] * rest
    least = least_ms * IN_ONE_PHASE.enter
    mine = excess[..., : len(columns)]
    highest = np.maximum.reduce([mine[:, -steps:].mean(axis=1).max(axis=1) for steps in LATELY])
    for phase in np.flatnonzero(highest >= least).tolist():
        smooth = steady(excess[phase])
        yield PhaseExcess(columns, excess[phase], smooth, running_total(smooth), world.usual_ms, least)


def _of_phases(world: World, chosen: Sequence[int]) -> tuple[Floats, Floats]:
    """[P, S, chosen] What these columns take longer than the median of them, in each phase and in the others."""
    values = np.ascontiguousarray(world.phases_ms[:, chosen].transpose(2, 0, 1))
    # All phases at once: of few ranks each call takes longer than its work.
    return _over_peers(values), _over_peers(world.own_ms[:, chosen] - values)


def _telling(world: World, excess: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """The same of series that tell how phases go together: of few means they are what those are means of."""
    if world.parts is None or len(world.ranks) > FEW:
        return excess, rest
    parts = world.parts[0]
    return _of_phases(parts, some_of(np.arange(len(parts.ranks))).tolist())


def _over_peers(values: Floats) -> Floats:
    """[P, S, R] Each value less the median of the others in its row."""
    return over_peers(values.reshape(-1, values.shape[-1])).reshape(values.shape)


def _shared(excess: Floats, rest: Floats) -> Floats:
    """[P] How much a phase of a typical rank rises with the rest of its step, over its peers' from block to block.

    From differences: a change that lasts, of a rank that begins to be late, is one of many. excess, rest: [P, S, R]
    """
    phases, steps, ranks = rest.shape
    if steps < FEWEST_BLOCKS * BLOCK or ranks <= FEW:
        return np.zeros(phases)
    count = steps // BLOCK
    of_phase, of_rest = (
        np.diff(values[:, : count * BLOCK].reshape(phases, count, BLOCK, ranks).mean(axis=2)[:, ::APART], axis=1)
        for values in (excess, rest)
    )
    together = (of_phase * of_rest).sum(axis=1)
    of_phase, of_rest = (np.square(each).sum(axis=1) + 1e-12 for each in (of_phase, of_rest))
    alike = medians(together / np.sqrt(of_phase * of_rest)) >= ALIKE
    return np.where(alike, medians(together / of_rest), 0.0)
