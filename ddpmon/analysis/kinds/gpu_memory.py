"""A GPU is nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import MIB, fitting, named_ranks
from ddpmon.messages import DeviceMark

NEARLY_FULL = Threshold(
    0.95,
    of="share of a GPU's memory that is in use",
    why="A judgement: of 80 GiB 4 are left, less than a batch that is a tenth longer may ask for.",
)
FULL = Threshold(
    0.98,
    of="the same",
    why="A judgement: of 80 GiB 1.6 are left; a warning, because the next batch may not fit.",
)


@dataclass(frozen=True)
class GpuMemory:
    """Of the fullest."""

    share: float
    left_bytes: float
    rank: int = for_words()
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[GpuMemory]]:
    """The ranks whose GPU is nearly full."""
    gpus = {one.rank: one for one in moment.evidence.memory if one.gpu_total_bytes}
    shares = {rank: (one.gpu_used_bytes or 0) / (one.gpu_total_bytes or 1) for rank, one in gpus.items()}
    ranks = sorted(rank for rank, share in shares.items() if NEARLY_FULL.reached(share))
    if ranks:
        worst = max(ranks, key=lambda rank: shares[rank])
        left = (gpus[worst].gpu_total_bytes or 0) * (1 - shares[worst])
        facts = GpuMemory(shares[worst], left, worst, moment.evidence.world_size)
        yield Detection(KIND, "warn" if FULL.reached(shares[worst]) else "info", facts, ranks)


def words(detection: Detection[GpuMemory]) -> Words:
    """How full, and whose else."""
    facts, ranks = detection.facts, detection.ranks
    lead = f"rank {facts.rank}'s GPU memory is {facts.share:.0%} full:"
    return Words(
        fitting(
            f"{lead} {facts.left_bytes / MIB:,.0f} MiB left",
            f"; {named_ranks(ranks, facts.world_size)} above {NEARLY_FULL.enter:.0%}" if len(ranks) > 1 else "",
        ),
        "A longer batch than any so far would not fit: smaller batches, activation checkpointing or"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. How much of it is torch's cache was not measured.",
        lead=lead,
    )


KIND = Kind(
    "gpu_memory",
    subject="world",
    gone="GPU memory is no longer nearly full",
    words=words,
    detect=detect,
    device=DeviceMark("GPU nearly full", ["gpu_memory"], 3),
)
