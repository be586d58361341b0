"""All ranks take longer than they did before."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment
from ddpmon.analysis.kinds.slow import Slow, slow_ranks
from ddpmon.analysis.kinds.slow_words import GONE, words


def detect(moment: Moment) -> Iterator[Detection[Slow]]:
    """Return the slowdowns of all ranks."""
    for one in slow_ranks(moment, {"all"}):
        yield one.detection(KIND)


KIND = Kind(
    "run_slowed",
    subject="world",
    gone=GONE,
    words=words,
    detect=detect,
    fewest_steps=1,
    by_cost=True,
    changes_level=True,
    slows="all ranks' {phase}",
)
