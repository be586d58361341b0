"""Reads what the kernel tells of processes in /proc, in this one place. Standard library only.

A process may end at any moment, and another user's may not be read: each function says what it answers then.
proc_pid_stat(5) and its neighbours describe the files.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/proc")
MOUNTS = ROOT / "self/mounts"
PTRACE_SCOPE = ROOT / "sys/kernel/yama/ptrace_scope"
"""File that says into which processes debuggers may look (ptrace(2)); missing without Yama."""
_DEAD = "ZX"
_STAT_FIELDS = 50
"""Fields from the state on: up to the exit status, which exists since Linux 3.5."""


class Stat(NamedTuple):
    """Fields of /proc/PID/stat."""

    state: str
    """R runs, S sleeps, D is in the kernel, T was stopped by a signal, t is held by a debugger, Z and X are dead."""
    parent: int
    group: int
    session: int
    cpu_ticks: int
    """User and system time, its own and that of children it has waited for; SC_CLK_TCK of them are a second."""
    start_ticks: int
    """Start of the process, since the machine was booted."""
    wait_status: int
    """Wait status of a zombie, for those who may read it, as waitpid would return it. Others read 0."""

    @property
    def alive(self) -> bool:
        """Return whether it is more than an entry that its parent has not taken notice of."""
        return self.state not in _DEAD


# --- all processes -------------------------------------------------------------------------------------------------


def pids() -> Iterator[int]:
    """Yield the pid of every process that can be seen."""
    for entry in os.scandir(ROOT):
        if entry.name.isdecimal():
            yield int(entry.name)


def stats() -> dict[int, Stat]:
    """Return the fields of every process that can be seen, by its pid."""
    return {pid: read for pid in pids() if (read := stat(pid)) is not None}


def children(of: Mapping[int, Stat] | None = None) -> dict[int, list[int]]:
    """The pids of each process's children, dead ones included. of: what `stats` answered, where that is there."""
    below: dict[int, list[int]] = {}
    for pid, read in (stats() if of is None else of).items():
        below.setdefault(read.parent, []).append(pid)
    return below


# --- one process ---------------------------------------------------------------------------------------------------


def exists(pid: int) -> bool:
    """Return whether there is such a process, alive or dead."""
    return (ROOT / str(pid)).exists()


def stat(pid: int) -> Stat | None:
    """Its state, relatives and times; None if there is no such process."""
    try:
        text = _text(pid, "stat")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    if len(fields) < _STAT_FIELDS:
        return None
    parent, group, session = map(int, fields[1:4])
    return Stat(fields[0], parent, group, session, sum(map(int, fields[11:15])), int(fields[19]), int(fields[49]))


def status(pid: int, name: str) -> str:
    """The line of that name in /proc/PID/status; "" if the process is gone, or the kernel has no such line."""
    try:
        lines = _text(pid, "status").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")


def parent(pid: int) -> int:
    """The pid of its parent; 0 if there is none."""
    return int(status(pid, "PPid") or 0)


def innermost_pid(pid: int) -> int:
    """Its pid in its own pid namespace; 0 if it is gone, or the kernel does not say."""
    return int((status(pid, "NSpid") or "0").split()[-1])


def owner(pid: int) -> int | None:
    """The user it belongs to; None if it is gone."""
    try:
        return (ROOT / str(pid)).stat().st_uid
    except OSError:
        return None


def arguments(pid: int) -> list[bytes]:
    """The words of its command line, the last one empty. Raises OSError."""
    return _bytes(pid, "cmdline").split(b"\0")


def environment(pid: int) -> list[bytes]:
    """The variables that it was started with, as NAME=VALUE. Raises OSError."""
    return _bytes(pid, "environ").split(b"\0")


def executable(pid: int) -> str:
    """The path of the program that it runs, as the kernel writes it. Raises OSError."""
    return os.readlink(ROOT / str(pid) / "exe")


def thread_names(pid: int) -> list[str]:
    """The names of its threads, at most 15 bytes each; those that end meanwhile are left out."""
    names = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(ROOT / str(pid) / "task"):
            with contextlib.suppress(OSError):
                names.append(_text(pid, f"task/{thread}/comm").rstrip("\n"))
    return names


def mapped(pid: int) -> bytes:
    """Return what it has mapped into its memory, a line each, with the paths of files. Raises OSError."""
    return _bytes(pid, "maps")


def moved_bytes(pid: int) -> int:
    """Return what it has read and written so far, files and pipes; 0 where that may not be read."""
    try:
        lines = _text(pid, "io").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def core_wait_s(pid: int) -> float:
    """Return how long its main thread could run and got no core, since it began; 0 where the kernel does not say."""
    try:
        return int(_text(pid, "schedstat").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def kernel_function(pid: int) -> str:
    """The function of the kernel that it waits in; "" where that is none or may not be read."""
    try:
        return _text(pid, "wchan").strip("0 \n")
    except OSError:
        return ""


# --- its signals ---------------------------------------------------------------------------------------------------


def catches(pid: int, number: int) -> bool:
    """Return whether it has a handler of its own for a signal."""
    return _has(status(pid, "SigCgt"), number)


def ignores(pid: int, number: int) -> bool:
    """Return whether a signal does nothing to it, as SIGINT to what a script put into the background."""
    return _has(status(pid, "SigIgn"), number)


def is_pending(pid: int, number: int) -> bool:
    """Return whether it has been sent a signal that it has not taken."""
    return any(_has(status(pid, name), number) for name in ("SigPnd", "ShdPnd"))


def is_stopped(pid: int) -> bool:
    """Return whether it was stopped by a signal, as Ctrl-Z does; one that a debugger holds is not."""
    return status(pid, "State").startswith("T")


def _has(mask: str, number: int) -> bool:
    return bool(int(mask or "0", 16) >> (number - 1) & 1)


# --- its open files ------------------------------------------------------------------------------------------------


def descriptor_path(descriptor: int, pid: int | None = None) -> str:
    """A path that opens anew what a descriptor of a process stands for; of this process where no pid is given."""
    return f"{ROOT}/{'self' if pid is None else pid}/fd/{descriptor}"


def descriptor_link(descriptor: int, pid: int | None = None) -> str:
    """Return what a descriptor stands for, as the kernel writes it. Raises OSError."""
    return os.readlink(descriptor_path(descriptor, pid))


def descriptors(pid: int) -> Iterator[tuple[int, str]]:
    """Every descriptor of a process and what it stands for; none where that may not be read."""
    with contextlib.suppress(OSError):
        for name in os.listdir(ROOT / str(pid) / "fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                yield int(name), descriptor_link(int(name), pid)


def descriptors_readable(pid: int) -> bool:
    """Return whether this process may look at another's descriptors, and at all else that the kernel guards alike."""
    return os.access(ROOT / str(pid) / "fd", os.R_OK | os.X_OK)


# --- this process and its machine ----------------------------------------------------------------------------------


def core_ticks() -> dict[int, list[int]]:
    """Return the line in /proc/stat (proc_stat(5)) of each core that is online, by its number; empty where there is
    none.
    """
    rows: dict[int, list[int]] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (ROOT / "stat").read_text().splitlines():
            name, *fields = line.split()
            if name[:3] == "cpu" and name != "cpu":
                rows[int(name[3:])] = [int(field) for field in fields]
    return rows


def ptrace_scope() -> int:
    """Return how far Yama restricts debuggers: 0 where it does not, or is not there, up to 3: nobody may."""
    try:
        return int(PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return 0


def boot_id() -> str:
    """Identity of this boot of the machine; "" where the kernel does not tell."""
    try:
        return _read_boot_id()
    except OSError:
        return ""


@functools.cache
def _read_boot_id() -> str:
    """Read once: later there may be no file free to read it by, and every run would seem to be of another boot."""
    return (ROOT / "sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """The pid namespace of this process, as "pid:[4026531836]"; "" where the kernel does not tell."""
    try:
        return os.readlink(ROOT / "self/ns/pid")
    except OSError:
        return ""


def _text(pid: int, name: str) -> str:
    return (ROOT / str(pid) / name).read_text(errors="replace")


def _bytes(pid: int, name: str) -> bytes:
    return (ROOT / str(pid) / name).read_bytes()
