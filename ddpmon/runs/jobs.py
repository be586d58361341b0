"""Finds the run that several `ddpmon exec` of one job on one machine share, and the processes that belong to it.

Under a lock in the folder of sockets, the first `ddpmon exec` starts the run and records its id. Later ones join it
while it is running; each creates a file in the run's `members`. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from pathlib import Path

from ddpmon.errors import RunNotFoundError
from ddpmon.proc import Process
from ddpmon.runs.folders import RUNTIME_VARIABLE, private_dir, run_dir, socket_dir
from ddpmon.runs.run import Run, load
from ddpmon.runs.visible_processes import Sight

_MEMBER = re.compile(r"(\d{1,10})-(\d{1,19})-(\d{1,9})")


class Job:
    """The run of a job on this machine. The job's file is locked until `close`."""

    def __init__(self, name: str, *, wait: bool = True) -> None:
        """Lock the job's file.

        Args:
            name: The job, as `tasks.Task` names it.
            wait: Wait for the lock. If False, raise BlockingIOError if another process has the lock.

        Raises:
            UnsafePathError: Another user could replace the file.
            OSError: The file cannot be opened.

        """
        self._path = socket_dir("jobs") / hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
        private_dir(self._path.parent.parent, RUNTIME_VARIABLE)
        private_dir(self._path.parent, RUNTIME_VARIABLE)
        self._file = self._locked(fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _locked(self, how: int) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, how)
                if os.fstat(file).st_nlink:
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # Another process deleted the file meanwhile.

    def close(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def run(self, rank: int) -> Run | None:
        """Return the run that this rank should join; None if the rank should start one."""
        run_id = os.pread(self._file, 64, 0).decode(errors="replace")
        if not re.fullmatch(r"[0-9a-f-]+", run_id):
            return None
        try:
            run = load(run_id)
        except RunNotFoundError:
            return None
        if run.ended or run.stopping or run.sight is not Sight.PIDS or not run.supervised():
            return None
        # Ranks of an earlier job on the same port may still be ending.
        return None if any(taken == rank for _, taken in members(run_id)) or run.job_rank == rank else run

    def begin(self, run_id: str) -> None:
        """Record the run that was started for the job."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, run_id.encode(), 0)

    def end(self, run_id: str) -> bool:
        """Prevent further processes from joining the run. Return False, and change nothing, if a member is alive."""
        if members(run_id):
            return False
        if os.pread(self._file, 64, 0) == run_id.encode():
            self._path.unlink(missing_ok=True)
        return True


def join(run_id: str, rank: int) -> None:
    """Make this process, and the command that replaces it, a member of a run. Raise OSError if that fails."""
    myself = Process.of(os.getpid())
    assert myself is not None  # noqa: S101  This process is alive.
    folder = _folder(run_id)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(folder / f"{myself.pid}-{myself.start_ticks}-{rank}", os.O_WRONLY | os.O_CREAT, 0o600))


def members(run_id: str) -> list[tuple[Process, int]]:
    """Return the live processes that joined a run, each with its rank."""
    try:
        names = os.listdir(_folder(run_id))
    except OSError:
        return []
    joined = (parts for name in names if (parts := _MEMBER.fullmatch(name)))
    members = [(Process(int(pid), int(ticks)), int(rank)) for pid, ticks, rank in (parts.groups() for parts in joined)]
    return [(process, rank) for process, rank in members if process.alive()]


def _folder(run_id: str) -> Path:
    return run_dir(run_id) / "members"
