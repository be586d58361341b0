"""How to deal out a batch to ranks of different speed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def even_batches(total: int, item_ms: Sequence[float]) -> list[int]:
    """Items of each rank, `total` together, that make the slowest rank's time the shortest: min of max(m_i t_i).

    item_ms: what a rank takes for one item, above zero. Every rank first gets what it does in the time that all
    together would need at best, whole items only; each of the rest goes to the rank that is done with it first.
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
