"""Has a rank that a launcher of the script's own started go on printing into logs of its own.

torchrun is told to keep what its ranks print apart. Under `ddpmon exec` all that a command starts prints into one file,
launcher.log. A process that turns out to be a rank leaves that file, and that file alone, for two in the run's folder;
a pipe of its launcher or a file of the user's stays what it is. Its children inherit what it has then.
"""

from __future__ import annotations

import contextlib
import os
import sys

from ddpmon.messages.folder import EXEC
from ddpmon.probe.folder import folder

_STREAMS = ((1, "stdout"), (2, "stderr"))


def keep_apart(rank: int, restart: int) -> None:
    """Print into the rank's own logs from now on, where it printed into launcher.log until now. Never raises."""
    try:
        inside = folder("logs")
        if inside is None:
            return
        shared = os.lstat(os.path.join(inside, "launcher.log"))
        for descriptor, name in _STREAMS:
            if os.path.samestat(os.fstat(descriptor), shared):
                _go_on(descriptor, name, os.path.join(inside, "ranks", EXEC, f"attempt_{restart}", str(rank)))
    except OSError:
        return  # no such file, a closed stdout, a full disk: it goes on where it was


def _go_on(descriptor: int, name: str, where: str) -> None:
    os.makedirs(where, 0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(os.path.join(where, f"{name}.log"), flags, 0o600)
    try:
        with contextlib.suppress(Exception):  # whatever the script has put there
            getattr(sys, name).flush()
        os.dup2(file, descriptor)
    finally:
        os.close(file)
