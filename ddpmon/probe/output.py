"""Has a rank that a launcher of the script's own started go on printing into logs of its own, and relieves spools.

torchrun is told to keep what its ranks print apart. Under `ddpmon exec` all that a command starts prints into one
spool, that of launcher.log. A process that turns out to be a rank leaves that one, and that one alone, for two of its
own; a pipe of its launcher or a file of the user's stays what it is. Its children inherit what it has then.

Where no drain comes, a spool would grow as long as somebody prints: the rank's background thread drops what it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from types import ModuleType

from ddpmon.messages.folder import EXEC

MOST_UNREAD_BYTES = 32 << 20
"""Of one spool. Far more than a drain that is awake leaves in it."""
_STREAMS = ((1, "stdout"), (2, "stderr"))
_BLOCK_BYTES = 512
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def keep_apart(rank: int, restart: int) -> None:
    """Print into the rank's own logs from now on, where it printed into launcher.log until now. Never raises."""
    try:
        spool = _spools()
        shared = f"/memfd:{spool.name('launcher.log')} (deleted)"
        for descriptor, name in _STREAMS:
            if _link(descriptor) == shared:
                with contextlib.suppress(Exception):  # whatever the script has put there
                    getattr(sys, name).flush()
                spool.replace(descriptor, f"ranks/{EXEC}/attempt_{restart}/{rank}/{name}.log")
    except (OSError, KeyError, ImportError):
        return  # no drain listens, a closed stdout: it goes on where it was


def relieve() -> None:
    """Drop what the spools of this process hold, if it is so much that nobody seems to take it. Never raises.

    Takes 2 µs. A drain that comes later finds a line in the place of what is missing.
    """
    for descriptor, _ in _STREAMS:
        with contextlib.suppress(OSError, KeyError):
            status = os.fstat(descriptor)
            if status.st_blocks * _BLOCK_BYTES > MOST_UNREAD_BYTES and _is_spool(descriptor):
                _drop(descriptor, status.st_blocks * _BLOCK_BYTES, status.st_size)


def _is_spool(descriptor: int) -> bool:
    return _link(descriptor).startswith(f"/memfd:ddpmon {os.environ['DDPMON_RUN_ID']} ")


def _link(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _drop(descriptor: int, unread: int, until: int) -> None:
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, until) == 0:
        os.write(
            descriptor, f"\n[ddpmon] {unread:,} bytes of output were not kept: nobody came to take them\n".encode()
        )


def _spools() -> ModuleType:
    """What lies beside sitecustomize, where nothing of ddpmon is imported."""
    from ddpmon.probe.inject import ddpmon_spool

    return ddpmon_spool
