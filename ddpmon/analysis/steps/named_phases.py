"""Time that scripts named with `ddpmon.phase`: each rank's mean, and the named phase that explains a straggler."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.world import World

MAX_REPORTED_NAMES = 32
"""Maximum number of names that are reported. Names with the most time are kept, because a script may use a new name in
every step."""


class NamedPhases:
    """The times of named phases in the last `steps` steps. Steps without any named phase cost nothing."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._named: deque[tuple[int, dict[str, Floats]]] = deque()
        """The number of each step, and its times [R] in ms by name."""

    def append(self, rows: Rows) -> None:
        """Append further steps and drop the oldest."""
        columns = {rank: column for column, rank in enumerate(rows.ranks)}
        numbers = rows.step_numbers()
        for place, number in enumerate(numbers):
            ms: dict[str, Floats] = {}
            for rank, record in rows.odd_records(place).items():
                for name, us in record.named_us.items():
                    ms.setdefault(name, np.zeros(len(columns)))[columns[rank]] = us / 1e3
            if ms:
                self._named.append((number, ms))
        while self._named and self._named[0][0] <= numbers[-1] - self._steps:
            self._named.popleft()

    def mean_ms(self, world: World) -> dict[str, Floats]:
        """Return the mean time [R] of each rank in each named phase, by name, over steps of the window."""
        sums = dict[str, Floats]()
        for step, times in self._named:
            if len(world) and world.step[0] <= step <= world.step[-1]:
                for name, ms in times.items():
                    sums[name] = sums.get(name, 0.0) + ms
        most = sorted(sums, key=lambda name: -sums[name].sum())[:MAX_REPORTED_NAMES]
        return {name: sums[name] / len(world) for name in sums if name in most and sums[name].any()}


class NamedPhase(NamedTuple):
    """The named phase in which a rank is late."""

    name: str
    mine_ms: float
    peers_ms: float
    """Mean time per step of the rank and of its peers in this phase."""


def explaining_phase(
    named: NamedPhases, world: World, rank: int, with_ranks: Collection[int], steps: tuple[int, int], over_ms: float
) -> NamedPhase | None:
    """Return the named phase in which a rank loses most of its excess; None if there is none.

    Args:
        named: Times of the named phases.
        world: The window.
        rank: The late rank.
        with_ranks: Other late ranks, which do not count as peers.
        steps: First and last step of the stretch in which the rank is late.
        over_ms: Excess of the rank over its peers in ms per step.

    """
    first, end = np.searchsorted(world.step, (steps[0], steps[1] + 1)).tolist()
    means = named.mean_ms(world.steps_between(first, end))
    peers = [column for column, other in enumerate(world.ranks) if other != rank and other not in with_ranks]
    if not means or not peers:
        return None
    column = world.ranks.index(rank)
    times = {name: (float(ms[column]), float(np.median(ms[peers]))) for name, ms in means.items()}
    excess = {name: mine - theirs for name, (mine, theirs) in times.items()}
    # If phases are nested, each phase around the excess contains it. The innermost phase has the least other time.
    losing = [name for name in excess if excess[name] >= EXPLAINS.enter * over_ms]
    name = min(losing, key=lambda name: times[name][0], default="")
    return NamedPhase(name, *times[name]) if name else None
