"""Time that scripts named with `ddpmon.phase`: each rank's mean, and the one that explains a straggler."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.world import World

MAX_NAMES = 32
"""Names that are reported, those with the most time: a script may name every step anew."""


class _Block(NamedTuple):
    """Neighbouring steps: S steps of R ranks with N names."""

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    step: Ints
    """[S]"""
    ms: NDArray[np.float32]
    """[S, R, N]"""


class NamedPhases:
    """Times with a name in the last `steps` steps. Steps without any name cost nothing."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._blocks: deque[_Block] = deque()

    def append(self, rows: Rows) -> None:
        """Append further steps; the oldest go."""
        width = len(rows.ranks)
        named = sorted({place // width for place, record in rows.odd.items() if record.named_us})
        if named:
            self._blocks.append(_block(rows.part(named)))
        last = rows.step_numbers()[-1]
        while self._blocks and self._blocks[0].step[-1] <= last - self._steps:
            self._blocks.popleft()

    def mean_ms(self, ranks: Sequence[int], first: int, last: int, steps: int) -> dict[str, Floats]:
        """Return the mean time of each rank in each name.

        Args:
            ranks: Ranks that are asked for.
            first: The first step of a stretch.
            last: The last step of it.
            steps: Number of steps in it.

        Returns:
            [R] ms of a step, by name.

        """
        sums: dict[str, Floats] = {}
        for block in self._blocks:
            inside = block.ms[(block.step >= first) & (block.step <= last)].sum(axis=0, dtype=np.float64)
            if block.ranks != tuple(ranks):
                places = {rank: place for place, rank in enumerate(block.ranks)}
                nothing = np.zeros((1, len(block.names)))
                inside = np.vstack([inside, nothing])[[places.get(rank, -1) for rank in ranks]]
            for name, column in zip(block.names, inside.T, strict=True):
                sums[name] = sums.get(name, 0.0) + column
        most = sorted(sums, key=lambda name: -sums[name].sum())[:MAX_NAMES]
        return {name: sums[name] / max(1, steps) for name in sums if name in most and sums[name].any()}


def _block(rows: Rows) -> _Block:
    records = sorted(rows.odd.items())
    names = tuple(dict.fromkeys(name for _, record in records for name in record.named_us))
    columns = {name: column for column, name in enumerate(names)}
    ms = np.zeros((rows.table.size, len(names)), np.float32)
    for place, record in records:
        for name, us in record.named_us.items():
            ms[place, columns[name]] = us / 1e3
    return _Block(rows.ranks, names, np.array(rows.step_numbers(), np.int64), ms.reshape(*rows.table.shape, -1))


class NamedPhase(NamedTuple):
    """The named time in which a rank is late."""

    name: str
    mine_ms: float
    peers_ms: float
    """Mean time of the rank and of its peers in it, in a step."""


def explaining_phase(
    named: NamedPhases, world: World, rank: int, with_ranks: Collection[int], steps: tuple[int, int], over_ms: float
) -> NamedPhase | None:
    """Return the name inside which a rank loses most of its excess, if there is one.

    Args:
        named: Times with a name.
        world: The window.
        rank: The late rank.
        with_ranks: Late ranks that are no peers.
        steps: First and last step of the stretch in which it is late.
        over_ms: Excess of its step over that of its peers.

    """
    first, last = max(steps[0], int(world.step[0])), steps[1]
    count = int(((world.step >= first) & (world.step <= last)).sum())
    means = named.mean_ms(world.ranks, first, last, count)
    peers = [column for column, other in enumerate(world.ranks) if other != rank and other not in with_ranks]
    if not means or not peers:
        return None
    column = world.ranks.index(rank)
    times = {name: (float(ms[column]), float(np.median(ms[peers]))) for name, ms in means.items()}
    excess = {name: mine - theirs for name, (mine, theirs) in times.items()}
    # Of names that lie within each other all that hold the excess do: the innermost one has the least besides.
    losing = [name for name in excess if excess[name] >= EXPLAINS.enter * over_ms]
    name = min(losing, key=lambda name: times[name][0], default="")
    return NamedPhase(name, *times[name]) if name else None
