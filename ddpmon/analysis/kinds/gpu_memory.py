"""A GPU is nearly full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import GIB, MIB, fitting, named_ranks
from ddpmon.messages import DeviceMark, Finding

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


def nearly_full(memory: Iterable[Memory]) -> dict[int, float]:
    """Return the share that is in use of each nearly full GPU, by rank."""
    shares = {one.rank: (one.gpu_used_bytes or 0) / one.gpu_total_bytes for one in memory if one.gpu_total_bytes}
    return {rank: share for rank, share in shares.items() if NEARLY_FULL.reached(share)}


def detect(moment: Moment) -> Iterator[Finding]:
    """The ranks whose GPU is nearly full, with the fullest."""
    shares = nearly_full(moment.evidence.memory)
    gpus, ranks = {one.rank: one for one in moment.evidence.memory}, sorted(shares)
    if not ranks:
        return
    worst = max(ranks, key=lambda rank: shares[rank])
    share, left = shares[worst], (gpus[worst].gpu_total_bytes or 0) * (1 - shares[worst])
    reserved, in_tensors = gpus[worst].gpu_reserved_bytes, gpus[worst].gpu_allocated_bytes
    of_torch = "How much of it is torch's cache was not measured."
    if reserved is not None and in_tensors is not None:
        of_torch = f"torch has {reserved / GIB:.1f} GiB of it, {in_tensors / GIB:.1f} of that in tensors."
    lead = f"rank {worst}'s GPU memory is {share:.0%} full:"
    several = f"; {named_ranks(ranks, moment.evidence.world_size)} above {NEARLY_FULL.enter:.0%}"
    words = Words(
        fitting(f"{lead} {left / MIB:,.0f} MiB left", several if len(ranks) > 1 else ""),
        "A longer batch than any so far would not fit: smaller batches, activation checkpointing or"
        f" PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. {of_torch}",
        lead=lead,
    )
    evidence = {"share": share, "left_bytes": left}
    yield KIND.finding("warn" if FULL.reached(share) else "info", words, ranks, evidence=evidence)


KIND = Kind(
    "gpu_memory",
    gone="GPU memory is no longer nearly full",
    detect=detect,
    device=DeviceMark("GPU nearly full", ["gpu_memory"], 3),
)
