"""The trend of a value that is sampled every second, from its lowest values (floors) in intervals of time.

A rise that is undone within an interval does not count. The pace is the mean rise from floor to floor. Its confidence
interval follows from how much the rises differ: in a random walk, they differ by more than their mean.
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
"""Lengths of the intervals in seconds. A fast leak is found after half a minute. A slow leak, or one that grows with
each epoch, is found after an hour."""
TREND_INTERVALS = 5
"""Number of intervals in a trend. Fewer intervals prove nothing, and more delay the finding."""
STUDENT = 4.54
"""98% quantile (two-sided) of Student's t with TREND_INTERVALS - 2 degrees of freedom, for the confidence interval."""


class Trend(NamedTuple):
    """The pace at which a value rises, with its confidence interval."""

    per_s: float
    low_per_s: float
    """The lower end of the interval; always above 0."""
    high_per_s: float


class Floors:
    """The lowest values in the latest TREND_INTERVALS complete intervals of each length and in the current one."""

    def __init__(self) -> None:
        self._floors: list[deque[tuple[int, float]]] = [deque(maxlen=TREND_INTERVALS + 1) for _ in STRETCHES_S]
        """For each length, the number and the lowest value of each interval, the oldest first."""

    def add(self, second: float, value: float) -> None:
        """Add a value that was sampled at `second`. Seconds must not decrease."""
        for stretch_s, floors in zip(STRETCHES_S, self._floors, strict=True):
            number = int(second // stretch_s)
            if floors and floors[-1][0] == number:
                floors[-1] = number, min(value, floors[-1][1])
            else:
                floors.append((number, value))

    def trend(self) -> Trend | None:
        """Return the pace at which the value rises, from the longest intervals that show a rise; None if none show a
        rise.
        """
        scales = zip(STRETCHES_S, self._floors, strict=True)
        return next((trend for scale in reversed(list(scales)) if (trend := _trend(*scale))), None)


def _trend(stretch_s: int, floors: deque[tuple[int, float]]) -> Trend | None:
    if len(floors) <= TREND_INTERVALS or floors[-1][0] - floors[0][0] > TREND_INTERVALS:  # an interval without a value
        return None
    values = [value for _, value in floors][:TREND_INTERVALS]
    if not GROWS.is_reached((values[-1] - values[0]) / max(values[0], 1.0)):
        return None
    rises = [after - before for before, after in pairwise(values)]
    pace, error = mean(rises), STUDENT * stdev(rises) / len(rises) ** 0.5
    if pace <= error:
        return None
    return Trend(*(each / stretch_s for each in (pace, pace - error, pace + error)))
