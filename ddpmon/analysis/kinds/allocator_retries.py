"""Allocators of GPU memory give their cache back again and again to find room, and each time the GPU stands."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.run_state import STARTING_S
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import GIB, fitting, named_ranks
from ddpmon.messages import DeviceMark, Finding

RETRIES = Threshold(
    3,
    of="seconds of the last 30 in which the allocator gave its cache back",
    why="A judgement: once a longer batch may need it, every ten seconds is a rule.",
    stay=2,
)


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield one finding about all ranks whose allocator does so. It names the one that does so most often."""
    held = moment.held_one(KIND) is not None
    seconds = {
        one.rank: one
        for one in moment.evidence.memory
        if STARTING_S.reached(one.trained_s) and RETRIES.reached(one.retry_seconds, held=held)
    }
    if not seconds:
        return
    rank, most = max(seconds.items(), key=lambda pair: pair[1].retry_seconds)
    reserved, in_tensors = (most.gpu_reserved_bytes or 0) / GIB, (most.gpu_allocated_bytes or 0) / GIB
    lead = f"rank {rank}'s GPU memory is short:"
    several = f"; so on {named_ranks(sorted(seconds), moment.evidence.world_size)}" if len(seconds) > 1 else ""
    words = Words(
        fitting(f"{lead} torch gave its cache back in {most.retry_seconds} of 30 s", several),
        f"Each time the GPU stands until its memory is freed and taken anew. torch has {reserved:.1f} GiB,"
        f" {in_tensors:.1f} of it in tensors: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps where pieces"
        " between them are too small (fragmentation), smaller batches or activation checkpointing where all of it is"
        " needed.",
        lead=lead,
    )
    evidence = {"seconds": most.retry_seconds, "reserved_bytes": most.gpu_reserved_bytes}
    yield KIND.finding("warn", words, sorted(seconds), evidence=evidence)


KIND = Kind(
    "allocator_retries",
    gone="GPU memory is no longer short",
    detect=detect,
    device=DeviceMark("GPU memory short", ["gpu_reserved"], 4),
)
