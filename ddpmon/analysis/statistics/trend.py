"""The trend of a value that is sampled every second, from its lowest values in intervals of time.

What comes and goes within a stretch does not count. The pace is the mean of the rises from floor to floor, and its
interval follows from how much these differ: rises of a random walk differ by more than their mean.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import mean, stdev
from typing import NamedTuple

from ddpmon.analysis.threshold import Threshold

GROWS = Threshold(
    0.02,
    of="share by which the lowest memory use of an interval has risen over five intervals of 6 s, a minute, "
    "or ten minutes",
    why="A judgement call: a memory leak that harms a run grows faster than that, and the cache of an "
    "allocator stops growing.",
)
STRETCHES_S = (6, 60, 600)
"""A leak shows in half a minute where it is fast, and in an hour where it is slow or comes with each epoch."""
PARTS = 5
"""Floors that a trend is made of: fewer say nothing certain, more come later."""
STUDENT = 4.54
"""Quantile of Student's t with PARTS - 2 degrees of freedom: 98% of means of random rises lie within so many errors of
0."""


class Trend(NamedTuple):
    """The pace at which a value rises, with its interval."""

    per_s: float
    low_per_s: float
    """Above 0."""
    high_per_s: float


class Floors:
    """Keeps the floors of a value over the latest PARTS stretches of each length, and of the one that is not over."""

    def __init__(self) -> None:
        self._floors: list[deque[tuple[int, float]]] = [deque(maxlen=PARTS + 1) for _ in STRETCHES_S]
        """Number and floor of the stretches of each length, the oldest first."""

    def add(self, second: float, value: float) -> None:
        """Add a value. Seconds rise."""
        for stretch_s, floors in zip(STRETCHES_S, self._floors, strict=True):
            number = int(second // stretch_s)
            if floors and floors[-1][0] == number:
                floors[-1] = number, min(value, floors[-1][1])
            else:
                floors.append((number, value))

    def trend(self) -> Trend | None:
        """Return how fast the value rises, by the longest stretches that show it; None: by none."""
        scales = zip(STRETCHES_S, self._floors, strict=True)
        return next((trend for scale in reversed(list(scales)) if (trend := _trend(*scale))), None)


def _trend(stretch_s: int, floors: deque[tuple[int, float]]) -> Trend | None:
    if len(floors) <= PARTS or floors[-1][0] - floors[0][0] > PARTS:  # a stretch without a value
        return None
    values = [value for _, value in floors][:PARTS]
    if not GROWS.reached((values[-1] - values[0]) / max(values[0], 1.0)):
        return None
    rises = [after - before for before, after in pairwise(values)]
    pace, error = mean(rises), STUDENT * stdev(rises) / len(rises) ** 0.5
    if pace <= error:
        return None
    return Trend(*(each / stretch_s for each in (pace, pace - error, pace + error)))
