"""Excess over the peers in one phase of the step alone.

A rank's own time strays as all its phases do together: one that reads its data late shows in its data long before it
shows in a sum in which forward and backward fight for the cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, running_total
from ddpmon.analysis.statistics.excess import Chance, chance, over_peers, some_of, steady
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES

MOST = 8
"""Columns that are looked at, the first: where noise hides ranks in their own time, it hides few."""
LATELY = (12, 48, 192, 0)
"""Last steps over which a phase is looked at for an excess worth the rest, each four times the one before; 0: all."""


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


def in_each_phase(world: World, columns: Sequence[int], least_ms: float) -> Iterator[PhaseExcess]:
    """For each phase in which one of these columns lately has so much over its peers on average."""
    if not columns:
        return
    columns = list(columns[:MOST])
    chosen = [*columns, *some_of(np.delete(np.arange(len(world.ranks)), columns)).tolist()]
    typical_ms = float(np.median(world.typical_ms))
    for phase in range(len(OWN_PHASES)):
        excess = over_peers(world.phases_ms[:, chosen, phase])
        if max(excess[-steps:, : len(columns)].mean(axis=0).max() for steps in LATELY) >= least_ms:
            smooth = steady(excess)
            total = running_total(smooth)
            yield PhaseExcess(columns, excess, smooth, total, chance(total, typical_ms))
