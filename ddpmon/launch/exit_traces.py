"""Finds out how a run ended that no supervisor saw end, from traces of the kernel, torchrun and the ranks. Standard
library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import struct

from ddpmon import runs
from ddpmon.runs import Process, Run, proc, rotated

_GET_INFO = 0xC040FF0B
"""PIDFD_GET_INFO of a struct pidfd_info of 64 bytes (linux/pidfd.h), since Linux 6.13."""
_INFO = struct.Struct("=QQ11Ii")
"""mask, cgroup id, eleven ids, wait status."""
_EXIT = 1 << 3
"""In the mask: the wait status is wanted, or there; since Linux 6.15, once the parent has reaped the process."""
_TABLE = re.compile(r"^(Failures|Root Cause)\b", re.MULTILINE)
_TAIL_BYTES = 262_144


class Stranger:
    """A process that is no child of this one, so that nothing reports its end."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.descriptor = -1
        """A pidfd, which becomes readable when the process ends; -1: there is none."""
        with contextlib.suppress(OSError):
            self.descriptor = os.pidfd_open(process.pid)
        # who may not read this sees 0 in the place of an exit code
        self._readable = proc.descriptors_readable(process.pid)
        if not process.alive() and self.descriptor >= 0:  # the pid may be another's by now
            os.close(self.descriptor)
            self.descriptor = -1

    def alive(self) -> bool:
        return self._process.alive()

    def exit_code(self) -> int | None:
        """Return its exit code as `os.waitstatus_to_exitcode` does, once it has ended; None where the kernel does not
        tell.
        """
        status = self._status_unreaped()
        if status is None:
            status = self._status_reaped()
        return None if status is None else os.waitstatus_to_exitcode(status)

    def _status_unreaped(self) -> int | None:
        """The wait status of a process whose parent has not asked for it yet."""
        stat = proc.stat(self._process.pid)
        if stat is None or stat.start_ticks != self._process.start_ticks or stat.state != "Z":
            return None
        return stat.wait_status if self._readable else None

    def _status_reaped(self) -> int | None:
        """The wait status of a process whose parent has."""
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
    """torchrun's exit code by what it and its ranks left behind; None where that does not tell.

    1 if its output ends in its table of failures. 0 if there is none and every rank of the last attempt said goodbye
    and told of no failure. A command other than torchrun leaves nothing that tells.
    """
    if run.world_size == 0:
        return None
    if _TABLE.search(rotated.tail(runs.run_dir(run.id) / "logs" / "launcher.log", _TAIL_BYTES)):
        return 1
    return 0 if all_said_goodbye(run) else None


def all_said_goodbye(run: Run) -> bool:
    """Return whether the recording has a goodbye of every rank of this machine's last attempt, and no failure of
    theirs.
    """
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
    """Return when something of the run was last written, Unix seconds."""
    folder = runs.run_dir(run.id)
    times = [run.created_at]
    for pattern in ("telemetry.db*", "logs/*.log", "logs/ranks/**/*.log", "tail/*"):
        for path in folder.glob(pattern):
            if path.name != "supervisor.log":  # the supervisor that took over writes it too
                with contextlib.suppress(OSError):
                    times.append(path.stat().st_mtime)
    return max(times)
