"""Has a rank that a launcher of the script's own started go on printing into logs of its own, and relieves spools.

torchrun is told to keep what its ranks print apart. Under `ddpmon exec` all that a command starts prints into one
spool, that of launcher.log. A process that turns out to be a rank leaves that one, and that one alone, for two of its
own; a pipe of its launcher or a file of the user's stays what it is. Its children inherit what it has then.

Where no drain comes, whoever prints would wait for ever once a spool is full: the rank's background thread empties it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
import time
from types import ModuleType

from ddpmon.messages.folder import EXEC

_STREAMS = ((1, "stdout"), (2, "stderr"))
_NEARLY_FULL = 0.9
"""Share of a pipe. A drain that is awake leaves that in none from one call to the next."""
_GRACE_S = 3.0
"""Longest time until a drain that was killed is replaced."""
_full_since: dict[int, float] = {}
_untold: dict[int, int] = {}
"""Bytes that were dropped, and that no line tells of yet."""


def keep_apart(rank: int, restart: int) -> None:
    """Print into the rank's own logs from now on, where it printed into launcher.log until now. Never raises."""
    try:
        spool = _spools()
        shared = f"/{spool.name('launcher.log')}"
        for descriptor, name in _STREAMS:
            if shared in _link(descriptor):
                with contextlib.suppress(Exception):  # whatever the script has put there
                    getattr(sys, name).flush()
                spool.replace(descriptor, f"ranks/{EXEC}/attempt_{restart}/{rank}/{name}.log")
    except (OSError, KeyError, ImportError):
        return  # no drain listens, a closed stdout: it goes on where it was


def relieve() -> None:
    """Empty the spools of this process where nobody has taken anything for long. Never raises.

    Takes 10 µs. A line stands in the place of what is missing.
    """
    for descriptor, _ in _STREAMS:
        with contextlib.suppress(OSError, KeyError):
            if not _is_spool(descriptor):
                continue
            if _held_bytes(descriptor) < _NEARLY_FULL * fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ):
                _full_since.pop(descriptor, None)
                continue
            now = time.monotonic()
            if now - _full_since.setdefault(descriptor, now) >= _GRACE_S and not _spools().drain_listens():
                _drop(descriptor)


def _is_spool(descriptor: int) -> bool:
    return f"/ddpmon {os.environ['DDPMON_RUN_ID']} " in _link(descriptor)


def _link(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _held_bytes(descriptor: int) -> int:
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def _drop(descriptor: int) -> None:
    # An end of its own: to read or write through the script's could block.
    end = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        dropped = _untold.get(descriptor, 0) + len(os.read(end, fcntl.fcntl(end, fcntl.F_GETPIPE_SZ)))
        _untold[descriptor] = dropped
        os.write(
            end, f"\n[ddpmon] {dropped:,} bytes of output are missing, because no process wrote the log\n".encode()
        )
        del _untold[descriptor]
    finally:
        os.close(end)


def _spools() -> ModuleType:
    """Return what lies beside sitecustomize, where nothing of ddpmon is imported."""
    from ddpmon.probe.inject import ddpmon_spool

    return ddpmon_spool
