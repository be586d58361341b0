"""What each rank's process and GPU did second by second, in bounded memory: fine of late, coarser before.

A sample is of the second before it. Ranks of one host share a clock, so that their columns stand below one another;
those of another host end with its own newest sample, which is never more than a moment away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS, quantise
from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.messages import DEVICE_COURSES, QUANTITIES, SAMPLE_SECONDS, Course, Sample

JITTER_S = 2
"""A second without a sample between two that have one was sampled a little too late."""
_SECOND_US = 1_000_000
"""In which samples are counted: one a second."""
_BEGINNING = 1 << 30
"""The second in which a host's first sample is counted: all hosts then fill the same slots, however old each is."""
_GATHERED = 64
"""Samples that are worked in together, at least: NumPy takes as long for one as for hundreds."""
_Values = tuple[float | None, ...]
_values: Callable[[Sample], _Values] = attrgetter(*(QUANTITIES[name].sample_field for name in DEVICE_COURSES))


class _Rings:
    """Sums over bins of so many seconds, of many ranks. Zeros are nothing: the kernel gives no memory for them.

    All ranks' values of a moment lie together: apart, a second of 16,384 ranks took 7 ms of CPU in place of 5, and the
    first, in which each had pages of its own made, 49 ms and more in place of 6.
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._bin: Ints = np.zeros((BINS, 0), np.int64)
        """[BINS, rows] Which bin is in a slot, counted from 1."""
        self._count: NDArray[np.uint16] = np.zeros((BINS, 0, len(DEVICE_COURSES)), np.uint16)
        self._sum: NDArray[np.float32] = np.zeros((BINS, 0, len(DEVICE_COURSES)), np.float32)

    def _grow(self, rows: int) -> None:
        """Have room for so many ranks."""
        used = self._bin.any(axis=1)
        for name in ("_bin", "_count", "_sum"):
            before = getattr(self, name)
            after = np.zeros((BINS, rows, *before.shape[2:]), before.dtype)
            after[used, : before.shape[1]] = before[used]
            setattr(self, name, after)

    def forget(self, row: int) -> None:
        """Another rank has this place."""
        self._bin[:, row] = 0

    def add(self, rows: Ints, seconds: Ints, values: Floats) -> None:
        """Take samples of ranks, [N]. values: [N, quantities], not finite where there is none."""
        if self._bin.shape[1] <= rows.max():
            self._grow(max(2 * self._bin.shape[1], int(rows.max()) + 1))
        numbers = seconds // self.seconds + 1
        order = np.lexsort((numbers, rows))
        begins = np.flatnonzero(np.diff(rows[order], prepend=-1) | np.diff(numbers[order], prepend=-1))
        measured = np.isfinite(values[order])
        count = np.add.reduceat(measured, begins, axis=0, dtype=np.uint16)
        total = np.add.reduceat(np.where(measured, values[order], 0.0), begins, axis=0)
        rows, numbers = rows[order][begins], numbers[order][begins]
        slots = numbers % BINS
        new = self._bin[slots, rows] != numbers
        for sums, added in ((self._count, count), (self._sum, total)):
            sums[slots[new], rows[new]] = 0
            sums[slots, rows] += added.astype(sums.dtype)  # of two bins in one slot the last counts, which is the newer
        self._bin[slots, rows] = numbers

    def means(self, row: int, last: int, columns: int) -> Floats:
        """[columns, quantities] Of the bins up to the one of the second `last`; NaN where there is no value."""
        numbers = np.arange(last // self.seconds - columns, last // self.seconds) + 2
        slots = numbers % BINS
        count = np.where((self._bin[slots, row] == numbers)[:, None], self._count[slots, row], 0)
        return np.where(count > 0, self._sum[slots, row].astype(np.float64) / np.maximum(count, 1), np.nan)


class _Rank:
    def __init__(self, row: int, host: str) -> None:
        self.row, self.host = row, host
        self.last = -1
        """The second of its latest sample, counted as its host's are."""


class Sampled:
    """Takes samples of ranks in the order of time; what was taken before is passed over."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._newest: dict[str, int] = {}
        """By host."""
        self._offsets: dict[str, int] = {}
        """By host, what makes its first second the _BEGINNING."""
        self._levels = [_Rings(seconds) for seconds in SAMPLE_SECONDS]
        self._gathered: list[tuple[int, int, _Values]] = []
        """Row, second and values of samples that are not worked in yet."""

    def add(self, rank: int, host: str, samples: Iterable[Sample]) -> None:
        """Take samples of a rank."""
        of_rank = self._ranks.get(rank)
        if of_rank is None or of_rank.host != host:
            of_rank = self._ranks[rank] = self._begun(of_rank, host)
        for sample in samples:
            second = sample.time_us // _SECOND_US
            second += self._offsets.setdefault(host, _BEGINNING - second)
            if second <= of_rank.last:
                continue
            values = _values(sample)
            if second - of_rank.last == JITTER_S:
                self._gathered.append((of_rank.row, second - 1, values))
            self._gathered.append((of_rank.row, second, values))
            of_rank.last = second
        self._newest[host] = max(self._newest.get(host, -1), of_rank.last)
        if len(self._gathered) >= max(_GATHERED, len(self._ranks)):
            self._work_in()

    def _begun(self, before: _Rank | None, host: str) -> _Rank:
        """A rank whose samples begin, in the place that it had on another host."""
        if before is None:
            return _Rank(len(self._ranks), host)
        self._work_in()
        for level in self._levels:
            level.forget(before.row)
        return _Rank(before.row, host)

    def _work_in(self) -> None:
        if not self._gathered:
            return
        rows, seconds, values = (np.array(each) for each in zip(*self._gathered, strict=True))
        for level in self._levels:
            level.add(rows, seconds, values.astype(np.float64))  # None: NaN
        self._gathered.clear()

    def courses(
        self, ranks: Sequence[int], names: Sequence[str], seconds: int, columns: int, full: Mapping[str, float]
    ) -> list[Course]:
        """Of each rank and quantity that has a value in these columns; all of a quantity on one scale, from 0 on.

        seconds: of a column, one of SAMPLE_SECONDS. full: to where the scales of some reach at least.
        """
        self._work_in()
        columns = min(columns, BINS)
        level = SAMPLE_SECONDS.index(seconds)
        places = [DEVICE_COURSES.index(name) for name in names]
        there = [(rank, self._ranks[rank]) for rank in ranks if rank in self._ranks]
        rings = self._levels[level]
        means = [rings.means(each.row, self._newest[each.host], columns)[:, places] for _, each in there]
        courses = []
        for place, name in enumerate(names):
            of_ranks = [each[:, place] for each in means]
            highest = max((float(np.nanmax(values)) for values in of_ranks if _has_value(values)), default=0.0)
            high = max(highest, full.get(name, 1e-9))
            for (rank, _), values in zip(there, of_ranks, strict=True):
                if _has_value(values):
                    cells = quantise(values, ~np.isnan(values), 0.0, high).tobytes()
                    courses.append(Course(rank, name, 0.0, high, cells))
        return courses


def _has_value(values: Floats) -> bool:
    return bool((~np.isnan(values)).any())
