"""Reads facts about processes from /proc for all of ddpmon. Standard library only.

A process may end at any moment, or belong to another user and not be readable. Each function says what it returns then.
proc_pid_stat(5) and related pages describe the files.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROC_ROOT = Path("/proc")
MOUNTS = PROC_ROOT / "self/mounts"
PTRACE_SCOPE = PROC_ROOT / "sys/kernel/yama/ptrace_scope"
"""File with Yama's limit on which processes debuggers may attach to (ptrace(2)); missing without Yama."""
_DEAD = "ZX"
_STAT_FIELDS = 50
"""Number of fields from the state to the exit status, which exists since Linux 3.5."""


class Stat(NamedTuple):
    """Fields of /proc/PID/stat."""

    state: str
    """R: running; S: sleeping; D: in the kernel; T: stopped by a signal; t: stopped by a debugger; Z and X: dead."""
    parent: int
    group: int
    session: int
    cpu_ticks: int
    """User and system time of the process and of the children it has waited for; SC_CLK_TCK ticks are one second."""
    start_ticks: int
    """When the process started, in ticks after the machine booted."""
    wait_status: int
    """Wait status of a zombie as waitpid would return it, for processes that may read it; others read 0."""

    @property
    def alive(self) -> bool:
        """Return whether the process is alive, and not a zombie."""
        return self.state not in _DEAD


# --- all processes -------------------------------------------------------------------------------------------------


def pids() -> Iterator[int]:
    """Yield the pid of every visible process."""
    for entry in os.scandir(PROC_ROOT):
        if entry.name.isdecimal():
            yield int(entry.name)


def stats() -> dict[int, Stat]:
    """Return the fields of every visible process, by pid."""
    return {pid: read for pid in pids() if (read := stat(pid)) is not None}


def children(of: Mapping[int, Stat] | None = None) -> dict[int, list[int]]:
    """Return the pids of each process's children, including dead ones. `of` is a result of `stats`, if there is one."""
    below: dict[int, list[int]] = {}
    for pid, read in (stats() if of is None else of).items():
        below.setdefault(read.parent, []).append(pid)
    return below


# --- one process ---------------------------------------------------------------------------------------------------


def exists(pid: int) -> bool:
    """Return whether a process with this pid exists, including zombies."""
    return (PROC_ROOT / str(pid)).exists()


def stat(pid: int) -> Stat | None:
    """Return a process's state, relatives and times; None if there is no such process."""
    try:
        text = _text(pid, "stat")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # The name before this may contain any character.
    if len(fields) < _STAT_FIELDS:
        return None
    parent, group, session = map(int, fields[1:4])
    return Stat(fields[0], parent, group, session, sum(map(int, fields[11:15])), int(fields[19]), int(fields[49]))


def status(pid: int, name: str) -> str:
    """Return a line of /proc/PID/status by its name; "" if the process is gone or the kernel has no such line."""
    try:
        lines = _text(pid, "status").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")


def parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if there is none."""
    return int(status(pid, "PPid") or 0)


def innermost_pid(pid: int) -> int:
    """Return a process's pid in its own pid namespace; 0 if it is gone or the kernel does not report it."""
    return int((status(pid, "NSpid") or "0").split()[-1])


def owner(pid: int) -> int | None:
    """Return the id of the user that a process belongs to; None if it is gone."""
    try:
        return (PROC_ROOT / str(pid)).stat().st_uid
    except OSError:
        return None


def arguments(pid: int) -> list[bytes]:
    """Return the words of a process's command line; the last one is empty. Raise OSError."""
    return _bytes(pid, "cmdline").split(b"\0")


def environment(pid: int) -> list[bytes]:
    """Return the variables that a process was started with, as NAME=VALUE. Raise OSError."""
    return _bytes(pid, "environ").split(b"\0")


def executable(pid: int) -> str:
    """Return the path of the program that a process runs, as the kernel writes it. Raise OSError."""
    return os.readlink(PROC_ROOT / str(pid) / "exe")


def thread_names(pid: int) -> list[str]:
    """Return the names of a process's threads, at most 15 bytes each, without threads that end meanwhile."""
    names = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(PROC_ROOT / str(pid) / "task"):
            with contextlib.suppress(OSError):
                names.append(_text(pid, f"task/{thread}/comm").rstrip("\n"))
    return names


def mapped(pid: int) -> bytes:
    """Return a process's memory mappings, one per line, with the paths of mapped files. Raise OSError."""
    return _bytes(pid, "maps")


def moved_bytes(pid: int) -> int:
    """Return how many bytes a process has read and written so far, in files and pipes; 0 if that is not readable."""
    try:
        lines = _text(pid, "io").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def core_wait_s(pid: int) -> float:
    """Return how many seconds a process's main thread has waited for a core; 0 if the kernel does not report it."""
    try:
        return int(_text(pid, "schedstat").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def kernel_function(pid: int) -> str:
    """Return the kernel function that a process waits in; "" if there is none or it is not readable."""
    try:
        return _text(pid, "wchan").strip("0 \n")
    except OSError:
        return ""


# --- its signals ---------------------------------------------------------------------------------------------------


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    return _has(status(pid, "SigCgt"), number)


def ignores(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal, as a script's background job ignores SIGINT."""
    return _has(status(pid, "SigIgn"), number)


def is_pending(pid: int, number: int) -> bool:
    """Return whether a signal that was sent to a process is still pending."""
    return any(_has(status(pid, name), number) for name in ("SigPnd", "ShdPnd"))


def is_stopped(pid: int) -> bool:
    """Return whether a signal stopped a process, as Ctrl-Z does. A process that a debugger holds does not count."""
    return status(pid, "State").startswith("T")


def _has(mask: str, number: int) -> bool:
    return bool(int(mask or "0", 16) >> (number - 1) & 1)


# --- its open files ------------------------------------------------------------------------------------------------


def descriptor_path(descriptor: int, pid: int | None = None) -> str:
    """Return a path that opens a process's descriptor anew. Without a pid, the process is this one."""
    return f"{PROC_ROOT}/{'self' if pid is None else pid}/fd/{descriptor}"


def descriptor_link(descriptor: int, pid: int | None = None) -> str:
    """Return the target of a descriptor's link in /proc, such as a path or "pipe:[123]". Raise OSError."""
    return os.readlink(descriptor_path(descriptor, pid))


def descriptors(pid: int) -> Iterator[tuple[int, str]]:
    """Yield every descriptor of a process with its `descriptor_link`; nothing if that is not readable."""
    with contextlib.suppress(OSError):
        for name in os.listdir(PROC_ROOT / str(pid) / "fd"):
            with contextlib.suppress(OSError):  # The descriptor was closed meanwhile.
                yield int(name), descriptor_link(int(name), pid)


def descriptors_readable(pid: int) -> bool:
    """Return whether this process may read the descriptors of another, and other data with the same protection."""
    return os.access(PROC_ROOT / str(pid) / "fd", os.R_OK | os.X_OK)


# --- this process and its machine ----------------------------------------------------------------------------------


def core_ticks() -> dict[int, list[int]]:
    """Return each online core's line in /proc/stat (proc_stat(5)), by the core's number; empty if there are none."""
    rows: dict[int, list[int]] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC_ROOT / "stat").read_text().splitlines():
            name, *fields = line.split()
            if name[:3] == "cpu" and name != "cpu":
                rows[int(name[3:])] = [int(field) for field in fields]
    return rows


def ptrace_scope() -> int:
    """Return Yama's level of restriction of debuggers, from 0 (none, or no Yama) to 3 (attaching is impossible)."""
    try:
        return int(PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return 0


def boot_id() -> str:
    """Return the identity of this boot of the machine; "" if the kernel does not report it."""
    try:
        return _read_boot_id()
    except OSError:
        return ""


@functools.cache
def _read_boot_id() -> str:
    """Read the identity once, because a later read can fail if no descriptor is free."""
    return (PROC_ROOT / "sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Return the pid namespace of this process, such as "pid:[4026531836]"; "" if the kernel does not report it."""
    try:
        return os.readlink(PROC_ROOT / "self/ns/pid")
    except OSError:
        return ""


def _text(pid: int, name: str) -> str:
    return (PROC_ROOT / str(pid) / name).read_text(errors="replace")


def _bytes(pid: int, name: str) -> bytes:
    return (PROC_ROOT / str(pid) / name).read_bytes()
