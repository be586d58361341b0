"""The lock that a run's supervisor holds as long as it lives, and which proves that it does. Standard library only.

It is a flock on `supervisor.lock` in the run's folder: the kernel lets go of it however its holder ends, and it is seen
from every pid namespace of the machine and, on network file systems that pass locks on (NFS, GPFS, Lustre mounted with
flock), from every machine.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from ddpmon.errors import DdpmonError
from ddpmon.runs.folders import run_dir

TRIES_S = 1.0
"""`lock_held` holds the lock for a moment: so long `hold` tries again."""


def hold(run_id: str) -> int:
    """Be the supervisor of a run as long as the returned file is open; a forked child holds it too.

    DdpmonError if another process is, OSError if the file cannot be made. Where there are no locks nothing is held.
    """
    file = os.open(_path(run_id), os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + TRIES_S
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise DdpmonError(f"run {run_id} already has a supervisor process") from None
                time.sleep(0.01)
            except OSError:
                return file
            else:
                return file
    except BaseException:
        os.close(file)
        raise


def held(run_id: str) -> bool:
    """Return whether a supervisor of a run certainly lives, wherever it runs."""
    return bool(lock_held(run_id))


def lock_held(run_id: str) -> bool | None:
    """Return whether a supervisor of a run lives; None where that is unknown: it was never taken, or there are no
    locks.
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
