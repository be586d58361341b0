"""Samples of each rank's process and GPU, one per second, in bounded memory: fine for recent seconds, coarser for
older.

A sample covers the second before it. Ranks of one host share a clock, so their columns are aligned. The columns of each
host end with its newest sample, so columns of different hosts are aligned only approximately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION, measured_cells
from ddpmon.analysis.over_time.mean_bins import Bins, MeanBins
from ddpmon.messages import DEVICE_COURSES, QUANTITIES, SAMPLE_SECONDS, Course, Sample

JITTER_S = 2
"""Distance in seconds of two samples at which the second between them is filled: the later sample was a little late."""
_SECOND_US = 1_000_000
"""Number of microseconds in a second."""
_FIRST_SECOND = 1 << 30
"""Number of the second of each host's first sample: all hosts fill the same bins, whatever their clocks show."""
_BATCH = 64
"""Minimum number of samples that are added to the bins together. NumPy takes as long for one sample as for hundreds."""
_Values = tuple[float | None, ...]
_values: Callable[[Sample], _Values] = attrgetter(*(QUANTITIES[name].field for name in DEVICE_COURSES))


class _Rank:
    def __init__(self, row: int, host: str) -> None:
        self.row, self.host = row, host
        self.last = -1
        """Number of the second of the rank's latest sample, by the clock of its host."""


class SampleBins:
    """Bins of the samples of all ranks. Samples come in the order of time; repeated ones are skipped."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._newest: dict[str, int] = {}
        """The latest second of each host."""
        self._offsets: dict[str, int] = {}
        """Offset that makes the first second of each host _FIRST_SECOND."""
        self._levels = {seconds: MeanBins(seconds, 1, DEVICE_COURSES) for seconds in SAMPLE_SECONDS}
        self._rows = 0
        """Number of rows that are in use; each rank has one."""
        self._batch: list[tuple[int, int, _Values]] = []
        """Row, second and values of each sample that is not in the bins yet."""

    def add(self, rank: int, host: str, samples: Iterable[Sample]) -> None:
        """Add samples of a rank. A rank that moved to another host starts anew."""
        known = self._ranks.get(rank)
        if known is None or known.host != host:
            known = self._ranks[rank] = _Rank(self._rows, host)
            self._rows += 1
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

    def _flush(self) -> None:
        if not self._batch:
            return
        rows, seconds, values = (np.array(each) for each in zip(*self._batch, strict=True))
        for level in self._levels.values():
            if level.sums.shape[1] < self._rows:
                level.resize_ranks(2 * self._rows)
            level.add_values(seconds, rows, values.astype(np.float64))  # None becomes NaN.
        self._batch.clear()

    def courses(
        self, ranks: Sequence[int], names: Sequence[str], seconds: int, columns: int, full: Mapping[str, float]
    ) -> list[Course]:
        """Return a curve of each rank and quantity that has a value. All curves of a quantity share a scale that begins
        at 0.

        Args:
            ranks: Ranks that are shown.
            names: Some of DEVICE_COURSES.
            seconds: Seconds in a column, one of SAMPLE_SECONDS.
            columns: Maximum number of columns.
            full: Minimum end of the scale of each quantity.

        """
        self._flush()
        level, columns = self._levels[seconds], min(columns, BINS_PER_RESOLUTION)
        shown = {}
        for rank in ranks:
            if (known := self._ranks.get(rank)) is not None:
                last = self._newest[known.host] // seconds
                bins = Bins.from_level(level, 1, np.arange(last - columns, last) + 1)
                shown[rank] = {name: bins.mean(name, np.array([known.row]))[:, 0] for name in names}
        courses = []
        for name in names:
            measured = {rank: each[name] for rank, each in shown.items() if not np.isnan(each[name]).all()}
            high = max([float(np.nanmax(values)) for values in measured.values()] + [full.get(name, 1e-9)])
            courses += [
                Course(rank, name, 0.0, high, measured_cells(values, 0.0, high)) for rank, values in measured.items()
            ]
        return courses
