"""Gives ranks that the script's own launcher started separate logs, and empties spools that nobody reads.

A spool is a pipe into which processes print, and which the run's drain empties into a log. torchrun itself separates
the output of its ranks. Under `ddpmon exec`, all processes of a command print into one spool, that of launcher.log. A
process that turns out to be a rank replaces this spool by two spools of its own. It does not if the launcher or the
user redirected its output to a pipe or a file. Children that the rank starts later inherit the rank's spools.

Without a drain, a full spool would block every write forever, so the rank's background thread empties it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
import time

from ddpmon import proc
from ddpmon.inject import ddpmon_spool
from ddpmon.messages.folder import EXEC

_STREAMS = ((1, "stdout"), (2, "stderr"))
_NEARLY_FULL = 0.9
"""Filled share from which on a pipe counts as full. A running drain keeps every pipe emptier than that."""
_GRACE_S = 3.0
"""Longest time in seconds until a drain that was killed is replaced."""
_full_since: dict[int, float] = {}
_untold: dict[int, int] = {}
"""Discarded bytes that no line in the log reports yet, by descriptor."""


def keep_apart(rank: int, restart: int) -> None:
    """Redirect output from launcher.log to the rank's own logs. Never raises."""
    try:
        folder, run_id = ddpmon_spool.run_of_environment()
        shared = f"/{ddpmon_spool.prefix(run_id, 'launcher.log')}"
        for descriptor, name in _STREAMS:
            if shared in proc.descriptor_link(descriptor):
                with contextlib.suppress(Exception):  # The script may have replaced the stream.
                    getattr(sys, name).flush()
                ddpmon_spool.replace(descriptor, folder, run_id, f"ranks/{EXEC}/attempt_{restart}/{rank}/{name}.log")
    except (OSError, KeyError):
        return  # There is no drain, or stdout is closed, so the output still goes to its earlier target.


def relieve() -> None:
    """Discard the content of this process's spools that were full and not read for _GRACE_S. Never raises.

    Takes 10 µs. A line in the log then reports the missing output.
    """
    for descriptor, _ in _STREAMS:
        with contextlib.suppress(OSError, KeyError):
            folder, run_id = ddpmon_spool.run_of_environment()
            if f"/ddpmon {run_id} " not in proc.descriptor_link(descriptor):
                continue
            if _held_bytes(descriptor) < _NEARLY_FULL * fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ):
                _full_since.pop(descriptor, None)
                continue
            now = time.monotonic()
            if now - _full_since.setdefault(descriptor, now) >= _GRACE_S and not ddpmon_spool.drain_listens(folder):
                _drop(descriptor)


def _held_bytes(descriptor: int) -> int:
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def _drop(descriptor: int) -> None:
    # Open a separate end: a read or write through the script's own descriptor could block.
    end = os.open(proc.descriptor_path(descriptor), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        dropped = _untold.get(descriptor, 0) + len(os.read(end, fcntl.fcntl(end, fcntl.F_GETPIPE_SZ)))
        _untold[descriptor] = dropped
        os.write(
            end, f"\n[ddpmon] {dropped:,} bytes of output are missing, because no process wrote the log\n".encode()
        )
        del _untold[descriptor]
    finally:
        os.close(end)
