"""Samples of each rank's process and GPU, second by second, in bounded memory: fine of late, coarser before.

A sample is of the second before it. Ranks of one host share a clock, so that their columns stand below one another;
those of another host end with its own newest sample, which is never more than a moment away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from ddpmon.analysis.over_time.cells import BINS, measured_cells
from ddpmon.analysis.over_time.mean_bins import Bins, MeanBins
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
_values: Callable[[Sample], _Values] = attrgetter(*(QUANTITIES[name].field for name in DEVICE_COURSES))


class _Rank:
    def __init__(self, row: int, host: str) -> None:
        self.row, self.host = row, host
        self.last = -1
        """The second of its latest sample, counted as its host's are."""


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
        """Rows of the bins that ranks have."""
        self._batch: list[tuple[int, int, _Values]] = []
        """Row, second and values of samples that are not in the bins yet."""

    def add(self, rank: int, host: str, samples: Iterable[Sample]) -> None:
        """Add samples of a rank. One that moved to another host begins anew."""
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
                level.grow(2 * self._rows)
            level.add_values(seconds, rows, values.astype(np.float64))  # None: NaN
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
        level, columns = self._levels[seconds], min(columns, BINS)
        shown = {}
        for rank in ranks:
            if (known := self._ranks.get(rank)) is not None:
                last = self._newest[known.host] // seconds
                bins = Bins.of(level, 1, np.arange(last - columns, last) + 1)
                shown[rank] = {name: bins.mean(name, np.array([known.row]))[:, 0] for name in names}
        courses = []
        for name in names:
            measured = {rank: each[name] for rank, each in shown.items() if not np.isnan(each[name]).all()}
            high = max([float(np.nanmax(values)) for values in measured.values()] + [full.get(name, 1e-9)])
            courses += [
                Course(rank, name, 0.0, high, measured_cells(values, 0.0, high)) for rank, values in measured.items()
            ]
        return courses
