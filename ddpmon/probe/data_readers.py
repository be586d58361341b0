"""Watches the processes that load a rank's data while its stack is sampled: its DataLoader workers, or the rank itself.

The background thread reads from /proc whether these processes compute, wait for storage or wait for something else, how
many bytes they read, and from which file system.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence

from ddpmon import proc
from ddpmon.cgroups import mounts
from ddpmon.messages import DataReader
from ddpmon.messages.stack_samples import MAX_READERS
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.plain import utf8
from ddpmon.probe import counters

MOST_SEARCHES = 8
"""Largest number of times to look for the file that a process reads while it waits for storage."""
_NO_DATA = ("/proc/", "/sys/", "/dev/")


class DataReaders:
    """Counts the states and the resource use of the processes that load a rank's data. Counting starts at once."""

    def __init__(self, workers: Sequence[int]) -> None:
        """Start counting. workers: pids of the rank's DataLoader workers; empty if the rank itself loads the data."""
        self._began = time.monotonic()
        self._pids = list(workers)[:MAX_READERS] or [os.getpid()]
        self._before = {pid: _used(pid) for pid in self._pids}
        self._looks: Counter[int] = Counter()
        self._states: Counter[tuple[int, str]] = Counter()
        self._mounts: Counter[tuple[str, str]] = Counter()

    def record_state(self, pid: int, thread: int, *, had_gil: bool = False) -> None:
        """Record the state of a process that the rank waits for now.

        Args:
            pid: The process; 0 if the rank itself loads the batch.
            thread: Kernel id of the training thread, whose state counts if `pid` is 0.
            had_gil: True if the training thread has just computed. If it sleeps now, it waits for the GIL.

        """
        reader = pid or os.getpid()
        stat = proc.stat(pid or f"self/task/{thread}")
        if reader not in self._before or stat is None:
            return
        state = "R" if stat.state == "S" and had_gil else stat.state
        self._looks[reader] += 1
        self._states[reader, state] += 1
        if state == "D" and self._mounts.total() < MOST_SEARCHES and (mount := _file_system(reader)) is not None:
            self._mounts[mount] += 1

    def activity_and_mount(self, idle: dict[int, tuple[int, int]]) -> tuple[list[DataReader], tuple[str, str]]:
        """Return the activity of each process, and the mount point and type of the file system that they waited for.

        idle: by worker, how often its stack was read while the rank waited for another worker, and in how many of
        these readings it was idle.
        """
        took = max(1e-3, time.monotonic() - self._began)
        made = []
        for pid in self._pids:
            now, before = _used(pid), self._before[pid]
            cpu_s, read, delay_s = (max(0.0, after - then) / took for after, then in zip(now, before, strict=True))
            made.append(
                DataReader(
                    pid,
                    cores=round(cpu_s, 3),
                    read_bytes_per_s=read,
                    starved_share=round(min(1.0, delay_s), 3),
                    looks=self._looks[pid],
                    running=self._states[pid, "R"],
                    blocked=self._states[pid, "D"],
                    checks=idle.get(pid, (0, 0))[0],
                    idle=idle.get(pid, (0, 0))[1],
                )
            )
        most = self._mounts.most_common(1)
        return made, most[0][0] if most else ("", "")


def _used(pid: int) -> tuple[float, float, float]:
    """Return the totals of a process: seconds of CPU time, bytes read from storage, seconds without a core."""
    stat, storage = proc.stat(pid), proc.storage_bytes(pid)
    cpu_s = 0.0 if stat is None else stat.own_ticks / os.sysconf("SC_CLK_TCK")
    return cpu_s, 0.0 if storage is None else storage[0], (proc.core_wait_ns(pid) or 0) / 1e9


def _file_system(pid: int) -> tuple[str, str] | None:
    """Return the mount point and type of the file system of the file that a process opened last for reading."""
    paths = (
        path
        for number, path in proc.descriptors(pid)
        if path.startswith("/") and not path.startswith(_NO_DATA) and counters.is_read_only(pid, number)
    )
    file = next(paths, None)
    if file is None:
        return None
    inside = ((mounted, kind) for kind, _, _, mounted in mounts() if os.path.commonpath([mounted, file]) == mounted)
    mounted, kind = max(inside, key=lambda one: len(one[0]), default=("", ""))
    return (utf8(mounted)[:MAX_NAME], utf8(kind)[:MAX_NAME]) if kind else None
