"""Conversion of the clocks of several hosts to one of them, by the moments at which gradient synchronisations end.

Clocks need not be synchronised: hosts may have booted days apart. A gradient synchronisation ends at the
same moment on all hosts. Each host reads that moment from its own clock, sometimes a little late, because a waiting
thread has to be woken first; the first rank of a host to continue counts. The differences between the ends on two
hosts lie along a line: an offset, and a drift of some ppm. The line is fitted to the latest differences by medians
(Theil, 1950; Sen, 1968, with pairs half of the points apart), which a quarter of outliers does not move.

The error has two bounds. If synchronisations really end at the same moment everywhere, the error of the line is at most
the scatter of the ends about it. In any case, no rank can leave an all-reduce before the last one has arrived: each
step bounds the offset from both sides, by the arrivals at one host and the ends at the other. A link that makes one
host always end later shifts the line within those bounds without being noticed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.statistics.arrays import Ints, series_median
from ddpmon.analysis.steps.table import ARRIVAL, END, KIND, Rows
from ddpmon.messages import SYNC_GRADIENTS, ClockView
from ddpmon.plain import utf8

MAX_FIT_POINTS = 512
"""Maximum number of synchronisation ends in a fit: some minutes of most runs, in which the drift is constant."""
STEPS_PER_FIT = 64
"""Number of steps after which the line is fitted again. In 6 s, a drift of 100 ppm adds up to 0.6 ms."""
MIN_DRIFT_POINTS = 32
"""Minimum number of points for fitting a drift: with fewer, a single thread that was woken late would tilt the line."""
MAX_DRIFT = 1e-3
"""Maximum drift; a larger fitted drift is clipped. No synchronised clock drifts faster."""
JUMPED = 8
"""Number of consecutive synchronisation ends far from the line that prove a jump of the clock."""
JUMP_US = 100_000
"""Minimum distance in µs of the ends from the line that proves a jump: far more than waking a thread takes. A clock
jumps if its machine was suspended, for example."""
STRAYS = 0.68, 2.0
"""(quantile of the distances of synchronisation ends from the line, multiple of this quantile that bounds the error).
The bound is two standard deviations of a normal distribution. The third of the ends with the largest distances does not
count, because threads were woken very late there."""
RESOLUTION_US = 10
"""Smallest error in µs that is reported: ends are rounded to whole µs."""
_AT, _ADDED, _LEAST, _MOST = range(4)
"""Columns of points: a synchronisation's end by a host's clock, the measured offset, and its two bounds."""


class Clocks:
    """The lines that convert the clocks of all hosts to one of them, updated with each step."""

    def __init__(self, reference: str = "") -> None:
        """Start without any points.

        Args:
            reference: Host whose clock all others are converted to; if it has no rank, the first rank's host is used.

        """
        self.reference = reference
        self._hosts: dict[str, _HostClock] = {}

    def offsets_us(self, rows: Rows, hosts: Mapping[int, str]) -> Ints | None:
        """Fit further steps and return the offsets to add to the times of ranks.

        Args:
            rows: Steps in rising order.
            hosts: Host of each rank.

        Returns:
            [S, R] µs; None where all ranks share a clock.

        """
        names = [hosts.get(rank, "") for rank in rows.ranks]
        if len(set(names)) < 2:
            return None
        if self.reference not in names:
            self.reference = names[0]
            self._hosts.clear()
        listed = list(dict.fromkeys(names))
        host_of = np.array([listed.index(name) for name in names])
        syncs, at = _syncs(rows, host_of), rows.integer_field("end_us")
        reference = listed.index(self.reference)
        offsets = np.zeros(at.shape, np.int64)
        for first in range(0, len(rows), STEPS_PER_FIT):
            block = slice(first, first + STEPS_PER_FIT)
            for host, name in enumerate(listed):
                if host == reference:
                    continue
                clock = self._hosts.setdefault(name, _HostClock())
                clock.learn(syncs[:, block, host], syncs[:, block, reference])
                if clock.line is not None:
                    columns = host_of == host
                    offsets[block, columns] = clock.line.at(at[block, columns])
        return offsets

    def to_reference_us(self, host: str, time_us: int) -> int:
        """Convert a moment of a host's clock to the reference clock. If the offset is unknown, return it unchanged."""
        clock = self._hosts.get(host)
        line = clock.line if clock is not None else None
        return time_us if line is None else time_us + int(line.at(np.array(time_us)))

    def agreements(self) -> list[ClockView]:
        """Return how well each host's clock agrees with the reference, for each host whose line has been fitted."""
        return [
            _agreement(host, self.reference, clock.points, clock.line)
            for host, clock in self._hosts.items()
            if clock.line is not None
        ]


NEVER = np.iinfo(np.int64).max
"""The value in place of the end of a gradient synchronisation that did not take place."""


@dataclass(frozen=True)
class _Line:
    """The offset of a clock at each of its moments. Times are large, so they are stored relative to a nearby origin."""

    origin_us: int
    base_us: int
    offset_us: float
    drift: float

    @classmethod
    def through(cls, points: Ints) -> _Line:
        """Fit a line to at least one point, [N, 4]."""
        at = points[:, _AT] - points[-1, _AT]
        added = points[:, _ADDED] - points[-1, _ADDED]
        drift, half = 0.0, len(points) // 2
        if len(points) >= MIN_DRIFT_POINTS:
            run, rise = (each[half:] - each[: len(each) - half] for each in (at, added))
            rises = run > 0
            drift = series_median(rise[rises] / run[rises]) if rises.any() else 0.0
            drift = min(MAX_DRIFT, max(-MAX_DRIFT, drift))
        return cls(int(points[-1, _AT]), int(points[-1, _ADDED]), series_median(added - drift * at), drift)

    def at(self, time_us: Ints) -> Ints:
        """Return the offsets at some moments, in the same shape."""
        since_us = time_us - self.origin_us
        offsets: Ints = self.base_us + np.round(self.offset_us + self.drift * since_us).astype(np.int64)
        return offsets


class _HostClock:
    """The latest points of a host, and the line through them."""

    def __init__(self) -> None:
        self.points: Ints = np.empty((0, 4), np.int64)
        """[N, 4] Ends of synchronisations by the host's clock, their offsets to the reference, and their bounds."""
        self.line: _Line | None = None

    def learn(self, mine: Ints, reference: Ints) -> None:
        """Add points and fit the line anew; after a jump of the clock, forget all points before it.

        Args:
            mine: [2, S] Ends and arrivals by this host's clock, as returned by `_syncs`.
            reference: [2, S] Ends and arrivals of the same steps by the reference clock.

        """
        both = (mine[0] != NEVER) & (reference[0] != NEVER)
        if not both.any():
            return
        (end, arrival), (reference_end, reference_arrival) = mine[:, both], reference[:, both]
        new = np.stack([end, reference_end - end, reference_arrival - end, reference_end - arrival], axis=1)
        self.points = np.concatenate([self.points, new])[-MAX_FIT_POINTS:]
        latest = self.points[-JUMPED:]
        if self.line is not None and len(self.points) >= 2 * JUMPED:
            off = latest[:, _ADDED] - self.line.at(latest[:, _AT])
            if max(off.min(), -off.max()) > JUMP_US:
                self.points = latest
        self.line = _Line.through(self.points)


def _syncs(rows: Rows, host_of: Ints) -> Ints:
    """Return the moments of each step by which the clocks of hosts are compared.

    Returns:
        [2, S, H] The end of a step's gradient synchronisation on each host's first rank to leave it, and the arrival of
        the host's last rank; NEVER in place of an end where there was none.

    """
    ends, arrivals = np.full(rows.table.size, NEVER), np.full(rows.table.size, -NEVER)
    owner, syncs = rows.syncs()
    gradients = syncs[:, KIND] == SYNC_GRADIENTS
    owner = owner[gradients]
    begin = (rows.integer_field("end_us") - rows.integer_field("length_us")).ravel()[owner]
    # If a step has several gradient synchronisations, the last one is kept.
    arrivals[owner], ends[owner] = begin + syncs[gradients, ARRIVAL], begin + syncs[gradients, END]
    order = np.argsort(host_of, kind="stable")
    begins = np.flatnonzero(np.diff(host_of[order], prepend=-1))
    shape = rows.table.shape
    return np.stack(
        [
            np.minimum.reduceat(ends.reshape(shape)[:, order], begins, axis=1),
            np.maximum.reduceat(arrivals.reshape(shape)[:, order], begins, axis=1),
        ]
    )


def _agreement(host: str, reference: str, points: Ints, line: _Line) -> ClockView:
    along = line.at(points[:, _AT])
    share, times = STRAYS
    strays = times * float(np.quantile(np.abs(points[:, _ADDED] - along), share))
    least, most = int((points[:, _LEAST] - along).max()), int((points[:, _MOST] - along).min())
    surely = max(-least, most) if least <= 0 <= most else None
    within = max(RESOLUTION_US, math.ceil(strays))
    return ClockView(
        utf8(host),
        utf8(reference),
        int(along[-1]) / 1e6,
        line.drift * 1e6,
        (within if surely is None else min(within, max(RESOLUTION_US, surely))) / 1e3,
        None if surely is None else surely / 1e3,
    )
