"""Sums over steps: the cost of all-reduce and the efficiencies, for a window or since the start of a run."""

from __future__ import annotations

import msgspec
import numpy as np

from ddpmon.analysis.statistics.excess import share_over_peers
from ddpmon.analysis.steps.world import World
from ddpmon.messages import EfficiencyView

_MEANS = ("length_ms", "wait_ms", "exposed_ms", "exposed_wait_ms", "gradient_bytes")
"""Names of arrays of a World; the mean over ranks is summed over steps."""


class StepSums(msgspec.Struct):
    """Sums over at least one step, in ms or bytes. A field without a description is the sum of a mean over ranks."""

    ranks: tuple[int, ...]
    first: int
    """The first step."""
    last: int
    steps: int
    """Number of steps that were summed; steps between `first` and `last` may have been lost."""
    own_ms: list[float]
    """Own time of each rank."""
    length_ms: float
    slowest_ms: float
    """The largest own time of each step, summed."""
    blocked_ms: float
    """Time blocked in synchronisations of all kinds."""
    exposed_ms: float
    """Time blocked in the gradient synchronisation."""
    exposed_wait_ms: float
    gradient_bytes: float
    wait_ms: float = 0.0
    """Time waited in synchronisations of all kinds."""

    @classmethod
    def from_world(cls, world: World) -> StepSums:
        """Return the sums over the steps of a world."""
        steps = len(world)
        sums = {name: float(world.mean(name).mean()) * steps for name in _MEANS}
        return cls(
            world.ranks,
            int(world.step[0]),
            int(world.step[-1]),
            steps,
            (world.mean("own_ms") * steps).tolist(),
            slowest_ms=float(world.slowest_ms.sum()),
            blocked_ms=sums["wait_ms"] + float(world.mean("transfer_ms").mean()) * steps,
            **sums,
        )

    def plus(self, later: StepSums) -> StepSums:
        """Return these sums with those of later steps of the same ranks added."""
        own = [mine + more for mine, more in zip(self.own_ms, later.own_ms, strict=True)]
        added = ("steps", "slowest_ms", "blocked_ms", *_MEANS)
        totals = {name: getattr(self, name) + getattr(later, name) for name in added}
        return msgspec.structs.replace(self, last=later.last, own_ms=own, **totals)

    @property
    def efficiency(self) -> EfficiencyView:
        """Return the efficiencies of POP's tree, with own time as useful time. All are 1.0 if there was no own time."""
        mean, worst, slowest = float(np.mean(self.own_ms)), max(self.own_ms), self.slowest_ms
        step = max(self.length_ms, slowest)  # Steps of ranks that never synchronise differ in length.
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
        """Return the gain if the work of each step were spread evenly, so that no rank waits; 1.0 means no gain."""
        even_ms = self.length_ms - self.slowest_ms + float(np.mean(self.own_ms))
        return self.length_ms / even_ms if even_ms > 0 else 1.0

    @property
    def slowest_rank(self) -> tuple[int, float]:
        """Return the rank with the most own time, and its excess over the median of the others as a fraction."""
        own = np.array(self.own_ms)
        place = int(own.argmax())
        return self.ranks[place], float(share_over_peers(own)[place])


class SinceStart:
    """The sums over all steps of a run, each added once. They start anew when the ranks change."""

    def __init__(self, sums: StepSums | None = None) -> None:
        """Continue from recorded sums; raise ValueError if they are inconsistent."""
        if sums is not None and (len(sums.own_ms) != len(sums.ranks) or sums.steps < 1 or sums.last < sums.first):
            raise ValueError("sums of no step, or of other ranks")
        self.sums = sums

    def append(self, part: World) -> None:
        """Append further steps, without those that were already counted."""
        before = self.sums if self.sums is not None and self.sums.ranks == part.ranks else None
        if before is not None:
            part = part.steps_between(int(np.searchsorted(part.step, before.last, side="right")), len(part))
        if len(part):
            sums = StepSums.from_world(part)
            self.sums = sums if before is None else before.plus(sums)
