"""What each rank's process and GPU did second by second, in bounded memory: fine of late, coarser before.

A sample is of the second before it. Ranks of one host share a clock, so that their columns stand below one another;
those of another host end with its own newest sample, which is never more than a moment away.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from ddpmon.analysis.over_time.cells import BINS, quantise
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.messages import DEVICE_COURSES, QUANTITIES, SAMPLE_SECONDS, Course, Sample

JITTER_S = 2
"""A second without a sample between two that have one was sampled a little too late."""
_SECOND_US = 1_000_000
"""In which samples are counted: one a second."""
_Values = tuple[float | None, ...]
_values: Callable[[Sample], _Values] = attrgetter(*(QUANTITIES[name].sample_field for name in DEVICE_COURSES))


class _Ring:
    """Means over bins of so many seconds, of one rank."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._number = array("q", [-1]) * BINS
        """Which bin is in a slot."""
        self._count = array("H", [0]) * (BINS * len(DEVICE_COURSES))
        self._mean = array("f", [math.nan]) * (BINS * len(DEVICE_COURSES))

    def add(self, second: int, values: _Values) -> None:
        number = second // self.seconds
        slot = number % BINS
        begin = slot * len(DEVICE_COURSES)
        if self._number[slot] != number:
            self._number[slot] = number
            for place in range(begin, begin + len(DEVICE_COURSES)):
                self._count[place], self._mean[place] = 0, math.nan
        for place, value in enumerate(values, begin):
            if value is not None and math.isfinite(value):
                count = self._count[place] = self._count[place] + 1
                mean = self._mean[place]
                self._mean[place] = value if count == 1 else mean + (value - mean) / count

    def means(self, last: int, columns: int) -> Floats:
        """[columns, quantities] Of the bins up to the one of the second `last`; NaN where there is no value."""
        numbers = np.arange(last // self.seconds - columns + 1, last // self.seconds + 1)
        slots = numbers % BINS
        means = np.array(np.frombuffer(self._mean, np.float32).reshape(BINS, -1)[slots], np.float64)
        means[np.frombuffer(self._number, np.int64)[slots] != numbers] = np.nan
        return means


class _Rank:
    def __init__(self, host: str) -> None:
        self.host = host
        self.last = -1
        """The second of its latest sample, by the clock of its host."""
        self.rings = [_Ring(seconds) for seconds in SAMPLE_SECONDS]


class Sampled:
    """Takes samples of ranks in the order of time; what was taken before is passed over."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._newest: dict[str, int] = {}
        """By host."""

    def add(self, rank: int, host: str, samples: Iterable[Sample]) -> None:
        """Take samples of a rank."""
        of_rank = self._ranks.get(rank)
        if of_rank is None or of_rank.host != host:
            of_rank = self._ranks[rank] = _Rank(host)
        for sample in samples:
            second = sample.time_us // _SECOND_US
            if second <= of_rank.last:
                continue
            values = _values(sample)
            begin = second - 1 if second - of_rank.last == JITTER_S else second
            for each in range(begin, second + 1):
                for ring in of_rank.rings:
                    ring.add(each, values)
            of_rank.last = second
        self._newest[host] = max(self._newest.get(host, -1), of_rank.last)

    def courses(
        self, ranks: Sequence[int], names: Sequence[str], seconds: int, columns: int, full: Mapping[str, float]
    ) -> list[Course]:
        """Of each rank and quantity that has a value in these columns; all of a quantity on one scale, from 0 on.

        seconds: of a column, one of SAMPLE_SECONDS. full: to where the scales of some reach at least.
        """
        columns = min(columns, BINS)
        level = SAMPLE_SECONDS.index(seconds)
        places = [DEVICE_COURSES.index(name) for name in names]
        there = [(rank, self._ranks[rank]) for rank in ranks if rank in self._ranks]
        means = [each.rings[level].means(self._newest[each.host], columns)[:, places] for _, each in there]
        courses = []
        for place, name in enumerate(names):
            of_ranks = [each[:, place] for each in means]
            highest = max((float(np.nanmax(values)) for values in of_ranks if _known(values)), default=0.0)
            high = max(highest, full.get(name, 1e-9))
            for (rank, _), values in zip(there, of_ranks, strict=True):
                if _known(values):
                    cells = quantise(values, ~np.isnan(values), 0.0, high).tobytes()
                    courses.append(Course(rank, name, 0.0, high, cells))
        return courses


def _known(values: Floats) -> bool:
    return bool((~np.isnan(values)).any())
