"""The last steps rank by rank: the order of arrival, the last rank, and each step's length without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.steps.world import World


@dataclass(frozen=True)
class Timeline:
    """Steps of a world. Columns are those of the world."""

    world: World
    """The steps of the timeline, without others."""
    order: list[int]
    """Columns, the latest to arrive first."""
    mended: list[int]
    """The columns whose own time is their peers' in `mended_ms`; none: no finding says that one is late, or all are."""
    mended_ms: list[float | None]
    """Length of each step with the own time of their peers."""
    host: str = ""
    """Their host, where it is the host that is late."""


def timeline(world: World, steps: int, late: Sequence[int] = (), host: str = "") -> Timeline:
    """Return the last steps of a world.

    The rank that arrives last has waited least; the order is that of the mean wait over these steps. In a single step
    for which no finding names a rank, the critical rank is mended.

    Args:
        world: The window.
        steps: Number of steps, at most.
        late: The ranks to mend.
        host: Their host, where it is the host that is late.

    """
    part = world.last(steps)
    order = np.argsort(part.wait_ms.mean(axis=0), kind="stable").tolist()
    mended = [part.ranks.index(rank) for rank in late if rank in part.ranks]
    if not mended and len(part) == 1 and part.critical[0] >= 0:
        mended = [int(part.critical[0])]
    if len(mended) == len(part.ranks):
        mended = []
    return Timeline(part, order, mended, _without(part, mended), host if mended else "")


def _without(part: World, mended: list[int]) -> list[float | None]:
    """Return the length of each step if some ranks' own time were the median of their peers'."""
    if not mended:
        return [None] * len(part)
    peers = np.delete(part.own_ms, mended, axis=1)
    own = np.maximum(peers.max(axis=1), np.minimum(np.median(peers, axis=1), part.own_ms[:, mended].max(axis=1)))
    rest = part.step_ms - part.own_ms.max(axis=1)
    return [float(value) for value in own + rest]
