"""The work of ranks (samples or tokens): the share of a slow rank's excess that more work explains, and an even
distribution.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, column_medians, row_medians, series_median
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

MORE_WORK = Threshold(
    0.05,
    of="share by which one rank has more samples or tokens than the others",
    why="A judgement call: a rank's own time grows by at most twice that share. The lengths of texts in a "
    "batch differ by this much by chance.",
)
_GROWING = [place for place, phase in enumerate(OWN_PHASES) if phase != "optimizer"]
"""Indices of the phases that take longer with more samples; the optimizer's time depends on the parameters."""


@dataclass(frozen=True)
class Work:
    """The samples or tokens of slow ranks in a step, and those of their peers."""

    unit: str
    """"samples" or "tokens"."""
    mine: float
    theirs: float
    share: float
    """Share of the excess that the additional work explains."""

    @property
    def times(self) -> float:
        """Return the work of the slow ranks as a multiple of their peers'."""
        return self.mine / self.theirs

    @property
    def is_alike(self) -> bool:
        """Return whether slow ranks and peers have nearly the same work."""
        return max(self.times, 1 / self.times) < 1 + MORE_WORK.enter


def work_of(world: World, columns: Sequence[int], peers: Sequence[int], over_ms: Floats) -> Iterator[Work]:
    """Yield comparisons of the slow ranks' work with their peers': one of tokens and one of samples, if counted.

    Args:
        world: The steps in which the ranks are slow.
        columns: The slow ranks.
        peers: The ranks to compare them with.
        over_ms: [5] Excess of the slow ranks in each phase.

    """
    for unit, counts in (("tokens", world.tokens), ("samples", world.samples)):
        mine, theirs = (series_median(counts[:, ranks].mean(axis=0)) for ranks in (columns, peers))
        if 0 < mine <= theirs:
            yield Work(unit, mine, theirs, 0.0)
        elif mine > theirs > 0:
            # The cost of attention grows with the square of a sequence's length.
            times = (mine / theirs) ** (2 if unit == "tokens" else 1)
            peers_ms = column_medians(row_medians(world.phases_ms[:, peers]))
            explained = np.maximum(np.minimum(over_ms, peers_ms * (times - 1))[_GROWING], 0.0)
            yield Work(unit, mine, theirs, float(explained.sum() / max(np.maximum(over_ms, 0.0).sum(), 1e-9)))


@dataclass(frozen=True)
class Even:
    """The distribution of a step's work with which all ranks would arrive together, given each rank's time per item."""

    mine: int
    """Work of the slow rank, in samples or tokens."""
    theirs: tuple[int, int]
    """The least and the most work of the other ranks."""
    slowest_ms: float
    """Own time of the slowest rank with this distribution."""
    slowest_now_ms: float


def even_distribution(world: World, unit: str, column: int) -> Even | None:
    """Return the even distribution of work over the ranks; None if some rank has no counted work.

    Args:
        world: The steps whose work is distributed.
        unit: "samples" or "tokens".
        column: Column of the slow rank.

    """
    counts = (world.tokens if unit == "tokens" else world.samples).mean(axis=0)
    if not (counts > 0).all():
        return None
    item_ms = world.own_ms.mean(axis=0) / counts
    shares = even_batches(round(float(counts.sum())), item_ms.tolist())
    slowest = max(count * ms for count, ms in zip(shares, item_ms.tolist(), strict=True))
    rest = sorted(shares[:column] + shares[column + 1 :])
    return Even(shares[column], (rest[0], rest[-1]), slowest, float((counts * item_ms).max()))


def even_batches(total: int, item_ms: Sequence[float]) -> list[int]:
    """Distribute `total` items so that the slowest rank takes the shortest time: minimise max(m_i t_i).

    First, every rank gets the whole items that it completes in the best possible time of all ranks together. Each of
    the remaining items goes to the rank that would complete it first.

    Args:
        total: Number of items.
        item_ms: Time that each rank takes for one item, above zero.

    Returns:
        The number of items of each rank.

    """
    speed = sum(1 / ms for ms in item_ms)
    counts = [int(total / speed / ms) for ms in item_ms]
    done = [((count + 1) * ms, rank) for rank, (count, ms) in enumerate(zip(counts, item_ms, strict=True))]
    heapq.heapify(done)
    for _ in range(total - sum(counts)):
        at, rank = done[0]
        counts[rank] += 1
        heapq.heapreplace(done, (at + item_ms[rank], rank))
    return counts
