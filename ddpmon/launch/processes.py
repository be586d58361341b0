"""Linux processes, as the supervisor needs them: starting, finding and signalling. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from ddpmon.runs import Process

PR_SET_CHILD_SUBREAPER = 36

# Whoever started ddpmon may have ignored some of these (nohup, a background job); a run starts as if not.
_TO_DEFAULT = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ,
    signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


def become_subreaper() -> None:
    """Adopt every orphan below this process, so that none leaves its tree. OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def spawn(argv: list[str], environment: dict[str, str], log: Path) -> int:
    """Start a program in a session of its own, nothing on stdin, output appended to `log`; returns its pid.

    Raises OSError if it cannot be started.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        argv[0],
        argv,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_TO_DEFAULT,
    )


def _pids() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            yield int(entry.name)


def descendants(root: int) -> list[tuple[int, Process]]:
    """Every live process below `root`, each with its parent's pid. Zombies are dead."""
    children: dict[int, list[tuple[Process, bool]]] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            found = Process(pid, int(fields[19])), fields[0] not in "ZX"
            children.setdefault(int(fields[1]), []).append(found)
    below: list[tuple[int, Process]] = []
    parents = [root]
    while parents:
        parent = parents.pop()
        for process, alive in children.get(parent, ()):
            parents.append(process.pid)
            if alive:
                below.append((parent, process))
    return below


def with_run_id(run_id: str) -> list[Process]:
    """Every live process of this user that was started with this run's environment."""
    wanted = f"DDPMON_RUN_ID={run_id}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if wanted in variables and (process := Process.of(pid)):
                found.append(process)
    return found


def is_rank(pid: int) -> bool:
    """Whether a launcher started this process as a rank: it found RANK in its environment."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(variable.startswith(b"RANK=") for variable in variables)


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    return bool(int(_status(pid, "SigCgt") or "0", 16) >> (number - 1) & 1)


def parent(pid: int) -> int:
    """The pid of a process's parent; 0 if there is none."""
    return int(_status(pid, "PPid") or 0)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, as Ctrl-Z does; one that a debugger holds is not."""
    return _status(pid, "State").startswith("T")


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a process has been sent a signal that it has not taken."""
    masks = [int(_status(pid, name) or "0", 16) for name in ("SigPnd", "ShdPnd")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def _status(pid: int, name: str) -> str:
    """A line of /proc/PID/status; "" if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:")), "")


def send(process: Process, number: signal.Signals) -> None:
    """Signal a process if it is still the one that was meant."""
    if process.alive():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def send_group(process: Process, number: signal.Signals) -> None:
    """Signal a process and all of its process group, as Ctrl-C in a terminal does."""
    if process.alive():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
