"""Sums over steps of a world: the cost of all-reduce and the efficiencies, of a window or since the start of a run."""

from __future__ import annotations

import msgspec
import numpy as np

from ddpmon.analysis.statistics.excess import share_over_peers
from ddpmon.analysis.steps.world import World
from ddpmon.messages import EfficiencyView

_MEANS = ("length_ms", "wait_ms", "exposed_ms", "exposed_wait_ms", "gradient_bytes")
"""Arrays of a World that are summed as means over ranks."""


class StepSums(msgspec.Struct):
    """Sums over at least one step, in ms and bytes; means over ranks, unless it says otherwise."""

    ranks: tuple[int, ...]
    first: int
    """The first step."""
    last: int
    steps: int
    """Number of steps: some may have been lost."""
    own_ms: list[float]
    """Own time of each rank."""
    length_ms: float
    longest_ms: float
    """Length of each step on the rank where it was longest."""
    slowest_ms: float
    """The largest own time of each step."""
    blocked_ms: float
    """Time in synchronisations of all kinds."""
    exposed_ms: float
    """Time in the gradient synchronisation."""
    exposed_wait_ms: float
    gradient_bytes: float
    wait_ms: float = 0.0
    """Wait in synchronisations of all kinds."""

    @classmethod
    def of(cls, world: World) -> StepSums:
        """Add up the steps of a world."""
        steps = len(world)
        sums = {name: float(world.mean(name).mean()) * steps for name in _MEANS}
        return cls(
            world.ranks,
            int(world.step[0]),
            int(world.step[-1]),
            steps,
            (world.mean("own_ms") * steps).tolist(),
            longest_ms=float(world.step_ms.sum()),
            slowest_ms=float(world.slowest_ms.sum()),
            blocked_ms=sums["wait_ms"] + float(world.mean("transfer_ms").mean()) * steps,
            **sums,
        )

    def plus(self, later: StepSums) -> StepSums:
        """Return the sums with those of later steps of the same ranks."""
        own = [mine + more for mine, more in zip(self.own_ms, later.own_ms, strict=True)]
        added = ("steps", "longest_ms", "slowest_ms", "blocked_ms", *_MEANS)
        totals = {name: getattr(self, name) + getattr(later, name) for name in added}
        return msgspec.structs.replace(self, last=later.last, own_ms=own, **totals)

    @property
    def efficiency(self) -> EfficiencyView:
        """The efficiencies of POP's tree, with own time as useful time; 1.0 where there was no own time at all."""
        mean, worst, slowest = float(np.mean(self.own_ms)), max(self.own_ms), self.slowest_ms
        step = max(self.length_ms, slowest)  # Ranks that nothing holds together have steps of their own length each.
        if not (step > 0 and slowest > 0 and worst > 0):
            return EfficiencyView(1.0, 1.0, 1.0, 1.0, 1.0)
        return EfficiencyView(
            parallel=mean / step,
            load_balance=mean / slowest,
            load_balance_persistent=mean / worst,
            load_balance_moving=worst / slowest,
            communication=slowest / step,
        )

    @property
    def gain_without_waiting(self) -> float:
        """The gain if the work of each step were spread evenly, so that nobody waits; 1.0: none."""
        even_ms = self.longest_ms - self.slowest_ms + float(np.mean(self.own_ms))
        return self.longest_ms / even_ms if even_ms > 0 else 1.0

    @property
    def slowest_rank(self) -> tuple[int, float]:
        """The rank with the most own time, and its excess over the median of the others, as a fraction."""
        own = np.array(self.own_ms)
        place = int(own.argmax())
        return self.ranks[place], float(share_over_peers(own)[place])


class SinceStart:
    """Adds up each step once. A change of the ranks starts it anew."""

    def __init__(self, sums: StepSums | None = None) -> None:
        """Go on from sums that were recorded; raise ValueError if they cannot be."""
        if sums is not None and (len(sums.own_ms) != len(sums.ranks) or sums.steps < 1 or sums.last < sums.first):
            raise ValueError("sums of no step, or of other ranks")
        self.sums = sums

    def append(self, part: World) -> None:
        """Append further steps; those that are counted already are left out."""
        before = self.sums if self.sums is not None and self.sums.ranks == part.ranks else None
        if before is not None:
            part = part.between(int(np.searchsorted(part.step, before.last, side="right")), len(part))
        if len(part):
            sums = StepSums.of(part)
            self.sums = sums if before is None else before.plus(sums)
