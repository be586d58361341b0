"""Memory of processes grows and grows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.run_state import STARTING_S
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import GIB, MIB, fitting, named_ranks
from ddpmon.messages import DeviceMark, Finding

GROWS = Threshold(
    0.02,
    of="share by which the floor of a rank's memory has risen over its samples",
    why="A judgement: a leak that matters within a run is more, and what an allocator keeps for itself levels off.",
)
HARMFUL_PER_HOUR = Threshold(
    1.0,
    of="times its size that a rank's memory grows by in an hour",
    why="A judgement: its size again within an hour ends a run overnight.",
)
PARTS = 5
"""Parts of the samples, each of which must have a higher floor than the one before: by chance one order of 120 has."""
PART_SAMPLES = 4
"""Samples of a part at least, so that it has a floor."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield one finding about all ranks whose memory kept growing. It names the rank that grows fastest."""
    pace = {one.rank: per_s for one in moment.evidence.memory if (per_s := _bytes_per_s(one))}
    if not pace:
        return
    rank = max(pace, key=lambda each: pace[each])
    per_s, size = pace[rank], next(one.rss_bytes[-1] for one in moment.evidence.memory if one.rank == rank)
    several = f"; grows on {named_ranks(sorted(pace), moment.evidence.world_size)}" if len(pace) > 1 else ""
    words = Words(
        fitting(f"rank {rank}'s memory grows {per_s * 60 / MIB:,.0f} MiB a minute, {size / GIB:.1f} GiB now", several),
        "Look for what is kept from step to step: losses summed with their graph (use .item() or .detach()),"
        f" lists of outputs, caches of a dataset. In an hour it is {per_s * 3600 / GIB:,.1f} GiB more.",
    )
    times = per_s * 3600 / size
    evidence = {"bytes_per_s": per_s, "rss_bytes": float(size), "times_per_hour": times}
    yield KIND.finding("warn" if HARMFUL_PER_HOUR.reached(times) else "info", words, sorted(pace), evidence=evidence)


def _bytes_per_s(one: Memory) -> float:
    """Return how fast the floor of a rank's memory rises; 0: it does not rise all along."""
    if one.trained_s < STARTING_S.enter or len(one.rss_bytes) < PARTS * PART_SAMPLES:
        return 0.0
    begins = [part * len(one.rss_bytes) // PARTS for part in range(PARTS)]
    floors = [min(one.rss_bytes[begin:end]) for begin, end in zip(begins, [*begins[1:], None], strict=True)]
    grown = floors[-1] - floors[0]
    if not GROWS.reached(grown / floors[0]) or any(after <= before for before, after in pairwise(floors)):
        return 0.0
    return grown / max(one.seconds[begins[-1]] - one.seconds[0], 1e-3)


KIND = Kind(
    "memory_growth",
    gone="memory no longer grows",
    detect=detect,
    device=DeviceMark("memory grows", ["rss"], 1),
)
