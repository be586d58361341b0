"""Detects idle ranks on this machine, by the CPU time and traffic of each rank and of its child processes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ddpmon import proc
from ddpmon.analysis.processes.starts import BUSY, BUSY_BYTES_PER_S
from ddpmon.store.processes import RankProcess

CPU_POLL_S = 2.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """CPU time and traffic of a process and its descendants, from their start up to a sample."""

    at: float
    cpu_s: float
    moved_bytes: int
    """Number of bytes read from and written to files and pipes."""
    pids: frozenset[int]


class CpuActivity:
    """CPU time and traffic of ranks over the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._measured_at = float("-inf")
        self._used: dict[int, deque[Used]] = {}

    def measure(self, pids: Iterable[int], now: float) -> None:
        """Sample the processes, at most every CPU_POLL_S seconds, because a sample reads the whole process table."""
        if now - self._measured_at < CPU_POLL_S:
            return
        self._measured_at = now
        children = proc.children()
        for pid in pids:
            used = self._used.setdefault(pid, deque())
            used.append(_used(pid, children, now))
            while len(used) > 1 and used[1].at <= now - self._window_s:
                used.popleft()

    def is_idle(self, process: RankProcess) -> bool:
        """Return whether a process was idle over the window. Return False if it was not sampled for so long."""
        used = self._used.get(process.hello.pid)
        if not used or used[-1].at - used[0].at < self._window_s or used[0].pids != used[-1].pids:
            return False
        first, last = used[0], used[-1]
        seconds = last.at - first.at
        samples = list(process.samples)[-int(self._window_s) :]  # There is one sample a second.
        return (
            last.cpu_s - first.cpu_s < BUSY.enter * seconds
            and last.moved_bytes - first.moved_bytes < BUSY_BYTES_PER_S.enter * seconds
            and not any((sample.gpu_percent or 0.0) > 100 * BUSY.enter for sample in samples)
        )


def _used(root: int, children: dict[int, list[int]], now: float) -> Used:
    pids = [root]
    ticks = moved = 0
    for pid in pids:
        pids += children.get(pid, ())
        if stat := proc.stat(pid):
            ticks += stat.cpu_ticks
        moved += proc.moved_bytes(pid)
    return Used(now, ticks / TICKS_PER_S, moved, frozenset(pids))
