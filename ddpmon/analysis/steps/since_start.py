"""What all-reduce costs and the efficiencies since the start of a run, from sums that grow by a step at a time."""

from __future__ import annotations

import msgspec
import numpy as np

from ddpmon.analysis.statistics.excess import share_over_peers
from ddpmon.analysis.steps.summary import efficiency_of
from ddpmon.analysis.steps.world import World
from ddpmon.messages import EfficiencyView


class Sums(msgspec.Struct):
    """Over steps, in ms and bytes; of what concerns every rank, the mean over ranks."""

    ranks: tuple[int, ...]
    first: int
    """The first step and the last one."""
    last: int
    steps: int
    """So many: some may have been lost."""
    own_ms: list[float]
    """Of each rank."""
    length_ms: float
    longest_ms: float
    """Of the rank whose step was longest."""
    slowest_ms: float
    """The largest own time of each step."""
    blocked_ms: float
    """In whatever synchronisation."""
    exposed_ms: float
    exposed_wait_ms: float
    gradient_bytes: float
    wait_ms: float = 0.0
    """In whatever synchronisation."""


class SinceStart:
    """Takes every step once. A change of the ranks starts it anew."""

    def __init__(self, sums: Sums | None = None) -> None:
        """sums: what was counted before; ValueError if they cannot be."""
        if sums is not None and (len(sums.own_ms) != len(sums.ranks) or sums.steps < 1 or sums.last < sums.first):
            raise ValueError("sums of no step, or of other ranks")
        self.sums = sums

    def append(self, part: World) -> None:
        """Take further steps; those that are counted already are left out."""
        before = self.sums
        if before is not None and before.ranks == part.ranks:
            part = part.between(int(np.searchsorted(part.step, before.last, side="right")), len(part))
        else:
            before = None
        if not len(part):
            return
        own = part.own_ms.sum(axis=0)
        new = {
            "length_ms": part.length_ms,
            "blocked_ms": part.wait_ms + part.transfer_ms,
            "wait_ms": part.wait_ms,
            "exposed_ms": part.exposed_ms,
            "exposed_wait_ms": part.exposed_wait_ms,
            "gradient_bytes": part.gradient_bytes,
        }
        totals = {name: float(values.mean(axis=1).sum()) for name, values in new.items()}
        totals |= {"longest_ms": float(part.step_ms.sum()), "slowest_ms": float(part.slowest_ms.sum())}
        first, steps = int(part.step[0]), len(part)
        if before is not None:
            own = own + before.own_ms
            totals = {name: value + getattr(before, name) for name, value in totals.items()}
            first, steps = before.first, before.steps + steps
        self.sums = Sums(part.ranks, first, int(part.step[-1]), steps, own.tolist(), **totals)


def efficiency_since(sums: Sums) -> EfficiencyView:
    """The POP tree of all steps."""
    return efficiency_of(np.array(sums.own_ms) / sums.steps, sums.slowest_ms / sums.steps, sums.length_ms / sums.steps)


def gain_without_waiting_since(sums: Sums) -> float:
    """How many times faster all steps were if the work of each were spread evenly, so that nobody waits."""
    spread = sums.longest_ms - sums.slowest_ms + float(np.mean(sums.own_ms))
    return sums.longest_ms / spread if spread > 0 else 1.0


def slowest_since(sums: Sums) -> tuple[int, float]:
    """The rank with the most own time, and by how much it exceeds the median of the others, as a fraction."""
    own = np.array(sums.own_ms)
    place = int(own.argmax())
    return sums.ranks[place], float(share_over_peers(own)[place])
