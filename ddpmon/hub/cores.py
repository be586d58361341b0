"""Measures every second how busy each core of this machine is. The hub does this, so that it costs ranks no time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ddpmon import proc
from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION, quantise_values
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.messages import SAMPLE_SECONDS, Course, CoursesView, SeriesRequest

KEPT_CORES_S = BINS_PER_RESOLUTION * SAMPLE_SECONDS[-1]
CORE_INTERVAL_S = 1.0
_COUNTED, _IDLE = 8, (3, 4)
"""Fields of a core's line in /proc/stat (proc_stat(5)): the number of fields that add up to all time (later fields
repeat the time of virtual machines), and the indices of idle time and of time waiting for a disk."""


class Ticks(NamedTuple):
    """The kernel's counts of each core's time so far, in clock ticks."""

    cores: tuple[int, ...]
    busy: Floats
    all: Floats


def core_counters() -> Ticks:
    """Return the counts of every core that is online. They are empty if the kernel does not report them."""
    rows = proc.core_ticks()
    times = np.array([row[:_COUNTED] for row in rows.values()], float).reshape(len(rows), _COUNTED)
    all_s = times.sum(axis=1)
    return Ticks(tuple(rows), all_s - times[:, _IDLE].sum(axis=1), all_s)


class Cores:
    """History of the busy share of every core over the last `KEPT_CORES_S` seconds."""

    def __init__(self, host: str, read: Callable[[], Ticks] = core_counters) -> None:
        """Start without measurements. host: this machine's name as ranks report it. read: reads the counters."""
        self._host, self._read = host, read
        self._before = Ticks((), np.empty(0), np.empty(0))
        self._measured_at = -math.inf
        self._last = 0
        """The second that was measured last."""
        self._share = np.empty((KEPT_CORES_S, 0), np.float32)
        """[second % KEPT_CORES_S, core], the busy share in each second, or NaN if it was not measured."""

    def measure(self, now: float) -> None:
        """Measure the cores if a second has passed. If several have passed, store their mean for each of them."""
        if now - self._measured_at < CORE_INTERVAL_S:
            return
        self._measured_at = now
        ticks, before, second = self._read(), self._before, int(now)
        self._before = ticks
        if ticks.cores != before.cores:
            self._share = np.full((KEPT_CORES_S, len(ticks.cores)), np.nan, np.float32)
        else:
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.clip((ticks.busy - before.busy) / (ticks.all - before.all), 0.0, 1.0)
            seconds = np.arange(max(self._last + 1, second - KEPT_CORES_S + 1), second + 1)
            self._share[seconds % KEPT_CORES_S] = share
        self._last = second

    def view(self, request: SeriesRequest) -> CoursesView:
        """Return the requested history of all cores, with the newest value last."""
        if not self._before.cores:  # The kernel does not report them.
            return CoursesView(request.per_column, 0, [], host=self._host)
        columns, each = min(request.columns, BINS_PER_RESOLUTION), request.per_column
        bins = np.arange(self._last // each - columns + 1, self._last // each + 1)
        seconds = bins[:, None] * each + np.arange(each)
        share = self._share[seconds % KEPT_CORES_S]
        share[(seconds > self._last) | (seconds <= self._last - KEPT_CORES_S)] = np.nan
        there = ~np.isnan(share)
        count = there.sum(axis=1)
        means = np.where(there, share, 0.0).sum(axis=1) / np.maximum(count, 1)
        cells = quantise_values(means, count > 0, 0.0, 1.0)
        cores = self._before.cores if there.any() else ()
        courses = [Course(core, "busy", 0.0, 1.0, cells[:, place].tobytes()) for place, core in enumerate(cores)]
        return CoursesView(each, columns, courses, host=self._host)
