"""The lock that a run's supervisor holds until it ends, which proves that it is alive. Standard library only.

The lock is a flock on `supervisor.lock` in the run's folder. The kernel releases the lock when the supervisor ends, in
whichever way. The lock is visible from every pid namespace of the machine. On network file systems that forward locks
(NFS, GPFS, Lustre mounted with flock), it is visible from every machine.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from ddpmon.errors import DdpmonError
from ddpmon.runs.folders import run_dir

TRIES_S = 1.0
"""Seconds for which `hold` retries, because `lock_held` briefly takes the lock."""


def hold(run_id: str) -> int:
    """Lock a run's supervisor.lock until the returned descriptor is closed, here and in forked children.

    On a file system without locks, nothing is held.

    Raises:
        DdpmonError: Another process is the supervisor.
        OSError: The file cannot be created.

    """
    file = os.open(_path(run_id), os.O_RDWR | os.O_CREAT, 0o600)
    if not lock_within(file, TRIES_S):
        os.close(file)
        raise DdpmonError(f"run {run_id} already has a supervisor process")
    return file


def lock_within(file: int, seconds: float) -> bool:
    """Lock a file, and wait up to `seconds` for another process to release it. Return False if that takes longer.

    On a file system without locks, the function does nothing, and returns True.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        except OSError:
            return True
        else:
            return True


def held(run_id: str) -> bool:
    """Return whether a supervisor of a run is certainly alive, on this or another machine."""
    return bool(lock_held(run_id))


def lock_held(run_id: str) -> bool | None:
    """Return whether a supervisor of a run is alive; None if that is unknown.

    The answer is unknown if no supervisor ever took the lock, or if the file system has no locks.
    """
    try:
        file = os.open(_path(run_id), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(file)


def _path(run_id: str) -> Path:
    return run_dir(run_id) / "supervisor.lock"
