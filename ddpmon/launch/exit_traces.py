"""Determines how a run ended from traces of the kernel, and if its supervisor was killed, of torchrun and the ranks.

Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddpmon import proc, runs
from ddpmon.cgroups import Cgroup, cgroups_of, read
from ddpmon.proc import PROC_ROOT
from ddpmon.runs import Process, Run, rotated_logs

_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_GET_INFO = 0xC040FF0B
"""The ioctl PIDFD_GET_INFO for a struct pidfd_info of 64 bytes (linux/pidfd.h); since Linux 6.13."""
_INFO = struct.Struct("=QQ11Ii")
"""Layout of struct pidfd_info: mask, cgroup id, eleven ids, wait status."""
_EXIT = 1 << 3
"""Bit of the mask that requests the wait status and confirms it. Needs Linux 6.15 and a process that was reaped."""
_TABLE = re.compile(r"^(Failures|Root Cause)\b", re.MULTILINE)
_TAIL_BYTES = 262_144
GOODBYES_S = 5.0
"""Longest time, in seconds, for the hub to record the goodbyes that ranks left behind."""


class Stranger:
    """A process that is not a child of this process, so that the kernel does not report its end to this process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.descriptor = -1
        """A pidfd, which becomes readable when the process ends; -1 if there is none."""
        with contextlib.suppress(OSError):
            self.descriptor = os.pidfd_open(process.pid)
        # Without permission to read the process, the kernel shows 0 in place of its exit code.
        self._readable = proc.descriptors_readable(process.pid)
        if not process.alive() and self.descriptor >= 0:  # By now the pid may belong to another process.
            os.close(self.descriptor)
            self.descriptor = -1

    def alive(self) -> bool:
        return self._process.alive()

    def exit_code(self) -> int | None:
        """Return the exit code of the ended process, as `os.waitstatus_to_exitcode` does; None if the kernel does not
        report it.
        """
        status = self._status_unreaped()
        if status is None:
            status = self._status_reaped()
        return None if status is None else os.waitstatus_to_exitcode(status)

    def _status_unreaped(self) -> int | None:
        """Return the wait status of a process that its parent has not reaped yet."""
        stat = proc.stat(self._process.pid)
        if stat is None or stat.start_ticks != self._process.start_ticks or stat.state != "Z":
            return None
        return stat.wait_status if self._readable else None

    def _status_reaped(self) -> int | None:
        """Return the wait status of a process that its parent has reaped."""
        if self.descriptor < 0:
            return None
        answer = bytearray(_INFO.pack(_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(self.descriptor, _GET_INFO, answer)
        except OSError:
            return None
        mask, *_, status = _INFO.unpack(answer)
        return int(status) if mask & _EXIT else None


def exit_code(run: Run) -> int | None:
    """Infer torchrun's exit code from its output and the ranks' goodbyes; return None if that is impossible.

    The code is 1 if torchrun's output ends in its table of failures. It is 0 if there is no table, and every rank of
    the last attempt sent a goodbye and reported no failure. A command other than torchrun leaves no such traces.
    """
    if run.world_size == 0:
        return None
    if _TABLE.search(rotated_logs.tail(runs.run_dir(run.id) / "logs" / "launcher.log", _TAIL_BYTES)):
        return 1
    return 0 if all_said_goodbye(run) else None


def wait_for_exit_code(run: Run, pause: Callable[[float], object]) -> int | None:
    """Infer the exit code as `exit_code` does, but wait until the hub has recorded the goodbyes, for GOODBYES_S."""
    deadline = time.monotonic() + GOODBYES_S
    while (code := exit_code(run)) is None and run.world_size and time.monotonic() < deadline:
        pause(0.1)
    return code


def shell_code(code: int) -> int:
    """Return an exit code as a shell reports it: 128 plus the number for a signal."""
    return 128 - code if code < 0 else code


def all_said_goodbye(run: Run) -> bool:
    """Return whether the recording has a goodbye of every rank of this machine's last attempt, and no failure."""
    path = runs.run_dir(run.id) / "telemetry.db"
    last = 'SELECT pid, rank, "left" FROM processes WHERE attempt = (SELECT max(attempt) FROM processes)'
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)) as db:
            ranks = db.execute(last).fetchall()
            failed = {pid for (pid,) in db.execute("SELECT pid FROM failures")}
    except sqlite3.Error:
        return False
    if len({rank for _, rank, _ in ranks}) < run.world_size:
        return False
    return all(has_left for _, _, has_left in ranks) and not failed.intersection(pid for pid, _, _ in ranks)


def last_sign_at(run: Run) -> float:
    """Return when a file of the run was last written, as Unix time in seconds."""
    folder = runs.run_dir(run.id)
    times = [run.created_at]
    for pattern in ("telemetry.db*", "logs/*.log", "logs/ranks/**/*.log", "tail/*"):
        for path in folder.glob(pattern):
            if path.name != "supervisor.log":  # The supervisor that took over writes this file too.
                with contextlib.suppress(OSError):
                    times.append(path.stat().st_mtime)
    return max(times)


@dataclass(frozen=True)
class MemoryKills:
    """Number of processes that the kernel has killed so far because memory ran out; None if there is no counter.

    SIGKILL itself does not show whether the kernel or a user sent it. The counters are `oom_kill` in a cgroup's
    `memory.events` (version 2) or `memory.oom_control` (version 1), and in /proc/vmstat for the whole host.
    """

    cgroup: int | None
    """Kills in this process's memory cgroup, or in the closest cgroup above it that has a counter."""
    host: int | None

    def increased_since(self, before: MemoryKills) -> str:
        """Return "cgroup" or "host" if the kernel has killed processes there since `before`; "" if it has not."""
        if self.cgroup is not None and before.cgroup is not None:
            return "cgroup" if self.cgroup > before.cgroup else ""  # Kills elsewhere on the host are not this run's.
        return "host" if self.host is not None and before.host is not None and self.host > before.host else ""


def read_kill_counts(proc: Path = PROC_ROOT) -> MemoryKills:
    """Return the current values of the counters."""
    files = map(_counting_file, cgroups_of("memory", proc))
    cgroup = next((kills for file in files if (kills := _kill_count(file)) is not None), None)
    return MemoryKills(cgroup, _kill_count(proc / "vmstat"))


def _kill_count(file: Path) -> int | None:
    line = _KILLS.search(read(file))
    return int(line[1]) if line else None


def _counting_file(cgroup: Cgroup) -> Path:
    return cgroup.folder / ("memory.oom_control" if cgroup.version == 1 else "memory.events")
