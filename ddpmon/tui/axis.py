"""The axis below a chart over time, with as many labels of times, ages or steps as fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ddpmon import numbers

MIN_LABEL_DISTANCE = 14
"""Minimum distance from the start of one label to the next, in columns."""
_MOST = 6
"""Maximum number of labels after the first one."""


def place_labels(of: Callable[[float], str], columns: int) -> str:
    """Return a line with labels at evenly spaced places. The first and the last label are at the line's edges.

    Args:
        of: Returns the label of a place: 0 is the left edge, 1 the right one.
        columns: Width of the chart above the axis.

    """
    ticks = max(1, min(_MOST, columns // MIN_LABEL_DISTANCE))
    text = ""
    for tick in range(ticks + 1):
        label = of(tick / ticks)
        place = round((columns - 1) * tick / ticks) - len(label) * tick // ticks + (tick == ticks)
        if not tick or place > len(text):
            text = text.ljust(place) + label
    return text[:columns]


def moment_label(seconds: float, span_s: float) -> str:
    """Return a time since the run's start, as 3h14m, or as 3h14m07.5s if the shown span is short."""
    if not math.isfinite(seconds):
        return numbers.NONE
    if span_s >= 7200 and seconds >= 3600:
        return numbers.duration(seconds)
    minutes, second = divmod(max(0.0, seconds), 60.0)
    hours, minutes = divmod(int(minutes), 60)
    digits = 0 if span_s >= 120 else 1 if span_s >= 10 else 2
    text = f"{math.floor(second * 10**digits) / 10**digits:.{digits}f}s"
    if hours:
        return f"{hours}h{minutes:02}m{text:0>{3 + digits + bool(digits)}}"
    return f"{minutes}m{text:0>{3 + digits + bool(digits)}}" if minutes else text


def span_labels(first: float, last: float, columns: int) -> str:
    """Return the labels of a span of times since the run's start."""
    whole = last - first
    return place_labels(lambda share: moment_label(first + whole * share, whole), columns)


def age_labels(seconds: float, columns: int, end: str = "now") -> str:
    """Return the labels of a span of time before its end: -2m00s, -1m00s, now."""
    return place_labels(lambda share: f"-{numbers.duration(seconds * (1 - share))}" if share < 1 else end, columns)


def steps(last: int, each: int, columns: int) -> str:
    """Return the labels of columns of `each` steps. The last column ends with the step `last`."""

    def step(share: float) -> str:
        at = last - round((columns - 1) * (1 - share)) * each
        return f"step {numbers.count(at)}" if share == 1 else numbers.count(at) if at > 0 else ""

    return place_labels(step, columns)


def moments_at(seconds: Sequence[float | None], columns: int) -> str:
    """Return the labels of columns, given the times since the run's start at evenly spaced places.

    Args:
        seconds: Seconds since the run's start at evenly spaced places, from the left edge to the right. If any is None,
            the result is "".
        columns: Width of the chart above the axis.

    """
    known = [value for value in seconds if value is not None]
    if len(known) < max(2, len(seconds)):
        return ""
    span_s = known[-1] - known[0]

    def between(share: float) -> str:
        place = share * (len(known) - 1)
        before = min(int(place), len(known) - 2)
        at = known[before] + (known[before + 1] - known[before]) * (place - before)
        return moment_label(at, span_s)

    return place_labels(between, columns)
