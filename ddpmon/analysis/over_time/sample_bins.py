"""Samples of each rank's process and GPU, second by second, in bounded memory: fine of late, coarser before.

A sample is of the second before it. Ranks of one host share a clock, so that their columns stand below one another;
those of another host end with its own newest sample, which is never more than a moment away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS, measured_cells
from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.messages import DEVICE_COURSES, QUANTITIES, SAMPLE_SECONDS, Course, Sample

JITTER_S = 2
"""A second without a sample between two that have one was sampled a little too late."""
_SECOND_US = 1_000_000
"""The unit in which samples are counted: one a second."""
_FIRST_SECOND = 1 << 30
"""The second in which a host's first sample is counted: all hosts then fill the same bins, however old each is."""
_BATCH = 64
"""Samples that are added to the bins together, at least: NumPy takes as long for one as for hundreds."""
_Values = tuple[float | None, ...]
_values: Callable[[Sample], _Values] = attrgetter(*(QUANTITIES[name].sample_field for name in DEVICE_COURSES))


class _Ring:
    """Sums over bins of so many seconds, of many ranks; of what shares a slot the newest bin stays."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._number: Ints = np.zeros(BINS, np.int64)
        """Number of the bin in each slot."""
        self._count: NDArray[np.uint16] = np.zeros((BINS, 0, len(DEVICE_COURSES)), np.uint16)
        self._sum: NDArray[np.float32] = np.zeros((BINS, 0, len(DEVICE_COURSES)), np.float32)

    def grow(self, rows: int) -> None:
        """Make room for so many rows."""
        missing = ((0, 0), (0, rows - self._sum.shape[1]), (0, 0))
        self._count, self._sum = np.pad(self._count, missing), np.pad(self._sum, missing)

    def forget(self, row: int) -> None:
        """Clear a row."""
        self._count[:, row], self._sum[:, row] = 0, 0

    def add(self, rows: Ints, seconds: Ints, values: Floats) -> None:
        """Add [N] samples of ranks. values: [N, quantities], not finite where there is none."""
        numbers = seconds // self._seconds
        for number in np.unique(numbers):
            slot = number % BINS
            if self._number[slot] < number:
                self._number[slot], self._count[slot], self._sum[slot] = number, 0, 0
        kept = self._number[numbers % BINS] == numbers
        place, values = (numbers[kept] % BINS, rows[kept]), values[kept]
        np.add.at(self._count, place, np.isfinite(values).astype(np.uint16))
        np.add.at(self._sum, place, np.where(np.isfinite(values), values, 0.0).astype(np.float32))

    def means(self, row: int, last_second: int, columns: int) -> Floats:
        """[columns, quantities] Return the means of the bins up to that of a second; NaN where there is no value."""
        last = last_second // self._seconds
        numbers = np.arange(last - columns, last) + 1
        slots = numbers % BINS
        count = np.where((self._number[slots] == numbers)[:, None], self._count[slots, row], 0)
        return np.where(count > 0, self._sum[slots, row].astype(np.float64) / np.maximum(count, 1), np.nan)


class _Rank:
    def __init__(self, row: int, host: str) -> None:
        self.row, self.host = row, host
        self.last = -1
        """The second of its latest sample, counted as its host's are."""


class SampleBins:
    """Takes samples of ranks in the order of time; what was taken before is passed over."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._newest: dict[str, int] = {}
        """The latest second of each host."""
        self._offsets: dict[str, int] = {}
        """Offset that makes the first second of each host _FIRST_SECOND."""
        self._rings = {seconds: _Ring(seconds) for seconds in SAMPLE_SECONDS}
        self._rows = 0
        """Rows that the rings have room for."""
        self._batch: list[tuple[int, int, _Values]] = []
        """Row, second and values of samples that are not in the bins yet."""

    def add(self, rank: int, host: str, samples: Iterable[Sample]) -> None:
        """Add samples of a rank. One that moved to another host begins anew."""
        known = self._ranks.get(rank)
        if known is None or known.host != host:
            self._flush()
            known = self._ranks[rank] = _Rank(len(self._ranks) if known is None else known.row, host)
            self._make_room(known.row)
        for sample in samples:
            second = sample.time_us // _SECOND_US
            second += self._offsets.setdefault(host, _FIRST_SECOND - second)
            if second <= known.last:
                continue
            values = _values(sample)
            if second - known.last == JITTER_S:
                self._batch.append((known.row, second - 1, values))
            self._batch.append((known.row, second, values))
            known.last = second
        self._newest[host] = max(self._newest.get(host, -1), known.last)
        if len(self._batch) >= max(_BATCH, len(self._ranks)):
            self._flush()

    def _make_room(self, row: int) -> None:
        if row < self._rows:
            for ring in self._rings.values():
                ring.forget(row)
            return
        self._rows = max(2 * self._rows, row + 1)
        for ring in self._rings.values():
            ring.grow(self._rows)

    def _flush(self) -> None:
        if not self._batch:
            return
        rows, seconds, values = (np.array(each) for each in zip(*self._batch, strict=True))
        for ring in self._rings.values():
            ring.add(rows, seconds, values.astype(np.float64))  # None: NaN
        self._batch.clear()

    def courses(
        self, ranks: Sequence[int], names: Sequence[str], seconds: int, columns: int, full: Mapping[str, float]
    ) -> list[Course]:
        """Return a course of each rank and quantity that has a value; all of a quantity on one scale that begins at 0.

        Args:
            ranks: Ranks that are shown.
            names: Some of DEVICE_COURSES.
            seconds: Seconds of a column, one of SAMPLE_SECONDS.
            columns: Number of columns, at most.
            full: The end that the scale of a quantity has at least.

        """
        self._flush()
        known = {rank: self._ranks[rank] for rank in ranks if rank in self._ranks}
        means = {
            rank: self._rings[seconds].means(each.row, self._newest[each.host], min(columns, BINS))
            for rank, each in known.items()
        }
        courses = []
        for name in names:
            place = DEVICE_COURSES.index(name)
            shown = {rank: each[:, place] for rank, each in means.items() if not np.isnan(each[:, place]).all()}
            high = max([float(np.nanmax(values)) for values in shown.values()] + [full.get(name, 1e-9)])
            courses += [
                Course(rank, name, 0.0, high, measured_cells(values, 0.0, high)) for rank, values in shown.items()
            ]
        return courses
