"""What the run would gain if ranks were no slower than their peers.

A step is simulated as the largest own time in it plus what the step took beyond that (the transfer): without a change
that is the step itself. A rank that is fixed gets its peers' own time, chance included: flat at their median it would
never be the last of them, and the gain would come out too high.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.world import Floats, World
from ddpmon.messages import OWN_PHASES

DRAWS = 8
"""Ways to give a fixed rank a peer's chance, averaged."""


def gain(world: World, columns: int | Sequence[int], phase: str | None = None) -> float:
    """How many times faster the window would have been with the own time of some ranks (or a phase) as their peers'.

    1.0: no gain.
    """
    if len(world.ranks) < 2:
        return 1.0
    fixed = [columns] if isinstance(columns, int) else list(columns)
    peers = np.delete(np.arange(len(world.ranks)), fixed)
    if not len(peers) or not fixed:
        return 1.0
    return _times_faster(world, _slowest_with(world, fixed, peers, phase))


def gain_all_at_median(world: World) -> float:
    """The same with every rank at the world's median own time in each step."""
    return _times_faster(world, np.median(world.own_ms, axis=1))


def gain_without_waiting(world: World) -> float:
    """The same if the work of each step were spread evenly, so that nobody waits."""
    return _times_faster(world, world.own_ms.mean(axis=1))


def gain_with_even_transfer(world: World) -> float:
    """The same if every step's transfer took its median."""
    slowest = world.own_ms.max(axis=1)
    rest = world.length_ms.max(axis=1) - slowest
    simulated = float((slowest + np.median(rest)).sum())
    return float((slowest + rest).sum()) / simulated if simulated > 0 else 1.0


def _times_faster(world: World, slowest: Floats) -> float:
    """slowest: [S] simulated own time of the critical rank."""
    real = world.length_ms.max(axis=1)
    simulated = float((real - world.own_ms.max(axis=1) + slowest).sum())
    return float(real.sum()) / simulated if simulated > 0 else 1.0


def _slowest_with(world: World, fixed: list[int], peers: np.ndarray, phase: str | None) -> Floats:
    """[S] The largest own time of each step if `fixed` were as their peers."""
    values = world.own_ms if phase is None else world.phases_ms[..., OWN_PHASES.index(phase)]
    others = world.own_ms[:, peers].max(axis=1)
    typical = np.median(values[:, peers], axis=1)
    keeps = world.own_ms[:, fixed] - values[:, fixed]
    if len(peers) == 1:
        # One peer's chance cannot be told from its level: the fixed rank keeps its own chance.
        own = values[:, fixed] - typical[:, None]
        mended = keeps + typical[:, None] + own - np.median(own, axis=0)
        largest: Floats = np.maximum(others, mended.max(axis=1))
        return largest
    strays = values[:, peers] - typical[:, None]
    # Of peers that differ for long each would be one of them: their chance is about their own level.
    strays -= np.median(strays, axis=0)
    total = np.zeros(len(world))
    for draw in range(DRAWS):
        shift = (draw + 1) * len(world) // (DRAWS + 1)
        rows = (np.arange(len(world)) + shift) % len(world)
        picked = (np.arange(len(fixed)) + draw) % len(peers)
        mended = keeps + typical[:, None] + strays[rows][:, picked]
        total += np.maximum(others, mended.max(axis=1))
    return total / DRAWS
