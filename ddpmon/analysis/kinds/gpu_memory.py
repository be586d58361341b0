"""A GPU is nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Found, Kind, Moment, Words, for_words
from ddpmon.analysis.words import fitting, rank_list
from ddpmon.messages import DeviceMark

MIB = 1 << 20
NEARLY_FULL = 0.95
FULL = 0.98


@dataclass(frozen=True)
class GpuMemory:
    """Of the fullest."""

    share: float
    left_bytes: float
    rank: int = for_words()
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Found[GpuMemory]]:
    """The ranks whose GPU is nearly full."""
    gpus = {one.rank: one for one in moment.evidence.memory if one.gpu_total_bytes}
    shares = {rank: (one.gpu_used_bytes or 0) / (one.gpu_total_bytes or 1) for rank, one in gpus.items()}
    ranks = sorted(rank for rank, share in shares.items() if share >= NEARLY_FULL)
    if ranks:
        worst = max(ranks, key=lambda rank: shares[rank])
        left = (gpus[worst].gpu_total_bytes or 0) * (1 - shares[worst])
        facts = GpuMemory(shares[worst], left, worst, moment.evidence.world_size)
        yield Found(KIND, "warn" if shares[worst] >= FULL else "info", facts, ranks)


def words(found: Found[GpuMemory]) -> Words:
    """How full, and whose else."""
    facts, ranks = found.facts, found.ranks
    return Words(
        fitting(
            f"rank {facts.rank}'s GPU memory is {facts.share:.0%} full: {facts.left_bytes / MIB:,.0f} MiB left",
            f"; ranks {rank_list(ranks, facts.world_size)} above {NEARLY_FULL:.0%}" if len(ranks) > 1 else "",
        ),
        "A longer batch than any so far would not fit: smaller batches, activation checkpointing or"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. How much of it is torch's cache was not measured.",
    )


KIND = Kind(
    "gpu_memory",
    subject="world",
    gone="GPU memory is no longer nearly full",
    words=words,
    detect=detect,
    device=DeviceMark("GPU nearly full", ["gpu GiB"], 3),
)
