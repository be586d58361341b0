"""Memory that runs out: of a process that keeps growing, and of a GPU that is nearly full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding

FEWEST_SAMPLES = 20
SETTLED_S = 60.0
"""Of training, before which a process still fills its caches."""
PARTS = 5
GROWS = 0.02
MIB = 1 << 20
LEAST_BYTES = 8 * MIB
HARMFUL_PER_HOUR = 1.0
"""Its size again within an hour."""
NEARLY_FULL = 0.95
FULL = 0.98


@dataclass(frozen=True)
class Memory:
    """A rank's memory over the last seconds."""

    rank: int
    seconds: Sequence[float]
    """When each was measured, since any moment, rising."""
    rss_bytes: Sequence[int]
    trained_s: float = 0.0
    """How long it has trained at the last of them."""
    gpu_used_bytes: int | None = None
    gpu_total_bytes: int | None = None


def memory_growth(told: Sequence[Memory], world_size: int) -> list[Finding]:
    """One finding about all ranks whose memory grew all along, by the same pace or not."""
    alike: dict[int, list[Memory]] = {}
    for one in told:
        if len(one.rss_bytes) >= FEWEST_SAMPLES and one.trained_s >= SETTLED_S:
            alike.setdefault(len(one.rss_bytes), []).append(one)
    growing: dict[int, tuple[float, float, float]] = {}
    for ranks_alike in alike.values():
        sizes = np.array([one.rss_bytes for one in ranks_alike], float)
        floors = np.array([part.min(axis=1) for part in np.array_split(sizes, PARTS, axis=1)])
        grown = floors[-1] - floors[0]
        grows = (np.diff(floors, axis=0) > 0).all(axis=0) & (grown >= np.maximum(LEAST_BYTES, GROWS * floors[0]))
        for i in np.flatnonzero(grows).tolist():
            begun = [part[0] for part in np.array_split(np.array(ranks_alike[i].seconds), PARTS)]
            per_s = float(grown[i] / max(begun[-1] - begun[0], 1e-3))
            size = float(sizes[i, -1])
            growing[ranks_alike[i].rank] = (per_s, size, per_s * 3600 / size)
    if not growing:
        return []
    worst = max(growing, key=lambda rank: growing[rank][0])
    per_s, size, per_hour = growing[worst]
    ranks = sorted(growing)
    return [
        Finding(
            "memory_growth",
            "warn" if per_hour >= HARMFUL_PER_HOUR else "info",
            fitting(
                f"rank {worst}'s memory grows {per_s * 60 / MIB:,.0f} MiB a minute, {size / 2**30:.1f} GiB now",
                f"; grows on ranks {rank_list(ranks, world_size)}" if len(ranks) > 1 else "",
            ),
            ranks,
            evidence={"bytes_per_s": per_s, "rss_bytes": size, "times_per_hour": per_hour},
            advice=(
                "Look for what is kept from step to step: losses summed with their graph (use .item() or .detach()),"
                f" lists of outputs, caches of a dataset. In an hour it is {per_s * 3600 / 2**30:,.1f} GiB more."
            ),
        )
    ]


def gpu_memory(told: Sequence[Memory], world_size: int) -> list[Finding]:
    """One finding about the ranks whose GPU is nearly full."""
    shares = {one.rank: (one.gpu_used_bytes or 0) / one.gpu_total_bytes for one in told if one.gpu_total_bytes}
    ranks = sorted(rank for rank, share in shares.items() if share >= NEARLY_FULL)
    if not ranks:
        return []
    worst = max(ranks, key=lambda rank: shares[rank])
    total = next(one.gpu_total_bytes or 0 for one in told if one.rank == worst)
    left = total * (1 - shares[worst])
    return [
        Finding(
            "gpu_memory",
            "warn" if shares[worst] >= FULL else "info",
            fitting(
                f"rank {worst}'s GPU memory is {shares[worst]:.0%} full: {left / MIB:,.0f} MiB left",
                f"; ranks {rank_list(ranks, world_size)} above {NEARLY_FULL:.0%}" if len(ranks) > 1 else "",
            ),
            ranks,
            evidence={"share": shares[worst], "left_bytes": left},
            advice=(
                "A longer batch than any so far would not fit: smaller batches, activation checkpointing or"
                " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. How much of it is torch's cache was not measured."
            ),
        )
    ]
