"""A quantity of all ranks over the whole run in bounded memory: neighbours merge when it is full."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
import numpy as np

from ddpmon.analysis.arrays import Bools, Floats
from ddpmon.messages import Series

BUCKETS = 512
Spread: TypeAlias = tuple[float | None, float | None, float | None]
"""Low, median, high."""


class Bucket(msgspec.Struct):
    """Some neighbouring steps as one. A NaN counts as the largest value, so that it stays visible."""

    seconds: float
    low: float | None
    median: float | None
    high: float | None
    steps: int = 1


class History:
    """Low, median and high over ranks, from the run's start on."""

    def __init__(self, buckets: Iterable[Bucket] = (), per_bucket: int = 1) -> None:
        self.buckets = list(buckets)
        self.per_bucket = per_bucket

    def add(self, seconds: float, low: float | None, median: float | None, high: float | None) -> None:
        """Take one step's values; None: nobody told any."""
        bucket = Bucket(seconds, low, median, high)
        if self.buckets and self.buckets[-1].steps < self.per_bucket:
            self.buckets[-1] = _merge(self.buckets[-1], bucket)
            return
        if len(self.buckets) >= BUCKETS:
            pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
            self.buckets = [_merge(a, b) for a, b in pairs]
            self.per_bucket *= 2
        self.buckets.append(bucket)

    def series(self) -> Series:
        """As viewers get it."""
        return Series(
            [round(b.seconds, 3) for b in self.buckets],
            [b.low for b in self.buckets],
            [b.median for b in self.buckets],
            [b.high for b in self.buckets],
        )


def _merge(a: Bucket, b: Bucket) -> Bucket:
    if b.median is None or a.median is None:
        known = b if a.median is None else a
        return Bucket(b.seconds, known.low, known.median, known.high, a.steps + b.steps)
    lows = [v for v in (a.low, b.low) if v is not None and not math.isnan(v)]
    highs = [v for v in (a.high, b.high) if v is not None]
    median = (a.median * a.steps + b.median * b.steps) / (a.steps + b.steps)
    high = math.nan if any(map(math.isnan, highs)) else max(highs)
    return Bucket(b.seconds, min(lows, default=math.nan), median, high, a.steps + b.steps)


def spread(values: Floats, known: Bools | None = None) -> list[Spread]:
    """Low, median and high of each row of [S, R]; NaN sorts last. None where a row has no known value."""
    if known is None or known.all():
        ordered = np.sort(values, axis=1)
        return [(row[0], _middle(row), row[-1]) for row in ordered.tolist()]
    rows: list[Spread] = []
    for row, there in zip(values, known, strict=True):
        told = np.sort(row[there]).tolist()
        rows.append((told[0], _middle(told), told[-1]) if told else (None, None, None))
    return rows


def _middle(ordered: list[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
