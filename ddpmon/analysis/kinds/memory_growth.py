"""Memory of processes grows and grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import MIB, fitting, named_ranks
from ddpmon.messages import DeviceMark

FEWEST_SAMPLES = Threshold(
    20,
    of="samples of a rank's memory",
    why="A judgement: four in each of the PARTS that are compared, so that each has a floor.",
)
SETTLED_S = Threshold(
    60.0,
    of="s of training",
    why="A judgement: before that a process still fills its caches.",
)
GROWS = Threshold(
    0.02,
    of="share by which the floor of a rank's memory has risen over its samples",
    why="A judgement: a leak that matters within a run is more, and what an allocator keeps for itself levels off.",
)
LEAST_BYTES = Threshold(
    8 * MIB,
    of="bytes by which it has risen",
    why="A judgement: of a small process 2% is an ordinary allocation.",
)
HARMFUL_PER_HOUR = Threshold(
    1.0,
    of="times its size that a rank's memory grows by in an hour",
    why="A judgement: its size again within an hour ends a run overnight.",
)
PARTS = 5
"""Parts of the samples, each of which must have a higher floor than the one before: by chance one order of 120 has."""


@dataclass(frozen=True)
class MemoryGrowth:
    """Of the rank whose memory grows fastest."""

    bytes_per_s: float
    rss_bytes: float
    times_per_hour: float
    """Its size again."""
    rank: int = for_words()
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[MemoryGrowth]]:
    """All ranks whose memory grew all along, by the same pace or not."""
    alike: dict[int, list[Memory]] = {}
    for one in moment.evidence.memory:
        if FEWEST_SAMPLES.reached(len(one.rss_bytes)) and SETTLED_S.reached(one.trained_s):
            alike.setdefault(len(one.rss_bytes), []).append(one)
    growing = {each.rank: each for ranks in alike.values() for each in _growing(ranks, moment.evidence.world_size)}
    if growing:
        fastest = max(growing.values(), key=lambda each: each.bytes_per_s)
        harmful = HARMFUL_PER_HOUR.reached(fastest.times_per_hour)
        yield Detection(KIND, "warn" if harmful else "info", fastest, sorted(growing))


def _growing(ranks: Sequence[Memory], world_size: int) -> Iterator[MemoryGrowth]:
    """Of ranks with equally many samples."""
    sizes = np.array([one.rss_bytes for one in ranks], float)
    floors = np.array([part.min(axis=1) for part in np.array_split(sizes, PARTS, axis=1)])
    grown = floors[-1] - floors[0]
    grows = (np.diff(floors, axis=0) > 0).all(axis=0) & (
        grown >= np.maximum(LEAST_BYTES.enter, GROWS.enter * floors[0])
    )
    for i in np.flatnonzero(grows).tolist():
        begun = [part[0] for part in np.array_split(np.array(ranks[i].seconds), PARTS)]
        per_s = float(grown[i] / max(begun[-1] - begun[0], 1e-3))
        size = float(sizes[i, -1])
        yield MemoryGrowth(per_s, size, per_s * 3600 / size, ranks[i].rank, world_size)


def words(detection: Detection[MemoryGrowth]) -> Words:
    """How fast, of whom."""
    facts = detection.facts
    several = f"; grows on {named_ranks(detection.ranks, facts.world_size)}" if len(detection.ranks) > 1 else ""
    return Words(
        fitting(
            f"rank {facts.rank}'s memory grows {facts.bytes_per_s * 60 / MIB:,.0f} MiB a minute,"
            f" {facts.rss_bytes / 2**30:.1f} GiB now",
            several,
        ),
        "Look for what is kept from step to step: losses summed with their graph (use .item() or .detach()),"
        f" lists of outputs, caches of a dataset. In an hour it is {facts.bytes_per_s * 3600 / 2**30:,.1f} GiB more.",
    )


KIND = Kind(
    "memory_growth",
    subject="world",
    gone="memory no longer grows",
    words=words,
    detect=detect,
    device=DeviceMark("memory grows", ["rss"], 1),
)
