"""Reads facts about processes from /proc for all of ddpmon. Standard library only.

A process may end at any moment, or belong to another user and not be readable. Then every function returns None, 0 or
an empty value. Each rank reads several files once a second, with cold CPU caches. Direct system calls take half the
time of psutil then. proc_pid_stat(5) and related pages describe the files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PROC_ROOT = Path("/proc")
MOUNTS = PROC_ROOT / "self/mounts"
PTRACE_SCOPE = PROC_ROOT / "sys/kernel/yama/ptrace_scope"
"""File with Yama's limit on which processes debuggers may attach to (ptrace(2)); missing without Yama."""
_DEAD = "ZX"
_STAT_FIELDS = 50
"""Number of fields from the state to the exit status, which exists since Linux 3.5."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_READ_BYTES = 65_536
_LEAST_PIECE_BYTES = 2048
"""A read that returns fewer bytes has reached the end of the file: the kernel returns a long file in pieces of whole
lines, each of nearly one page."""


def read(path: str) -> bytes:
    """Return the content of a file of the kernel; b"" if there is none, or it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = data = os.read(file, _READ_BYTES)
        while len(data) >= _LEAST_PIECE_BYTES:
            data = os.read(file, _READ_BYTES)
            content += data
    except OSError:
        return b""
    finally:
        with contextlib.suppress(OSError):  # The script of a rank may have just closed it.
            os.close(file)
    return content


def numbers_in(path: str, mark: bytes, *names: bytes) -> list[int]:
    """Return the numbers from lines such as "VmRSS: 1234 kB" of a file, in the order of its lines.

    Args:
        path: The file.
        mark: Separator between name and number, such as b":".
        *names: Names whose numbers are returned; names that the file lacks are skipped.

    """
    rows = (line.partition(mark) for line in read(path).splitlines())
    return [int(value.split()[0]) for name, _, value in rows if name in names and value.strip()[:1].isdigit()]


class Stat(NamedTuple):
    """Fields of /proc/PID/stat. SC_CLK_TCK ticks are one second."""

    state: str
    """R: running; S: sleeping; D: in the kernel; T: stopped by a signal; t: stopped by a debugger; Z and X: dead."""
    parent: int
    group: int
    session: int
    own_ticks: int
    """User and system time of the process's threads."""
    cpu_ticks: int
    """`own_ticks`, and those of the children that the process has waited for."""
    threads: int
    start_ticks: int
    """When the process started, in ticks after the machine booted."""
    rss_bytes: int
    core: int
    """Core on which the main thread ran last."""
    wait_status: int
    """Wait status of a zombie as waitpid would return it, for processes that may read it; others read 0."""

    @property
    def alive(self) -> bool:
        """Return whether the process is alive, and not a zombie."""
        return self.state not in _DEAD


@dataclass(frozen=True)
class Process:
    """A process by its pid and start time, so that a process with a recycled pid is not equal to it."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the live process with a pid; None if there is none. A zombie does not count."""
        its = stat(pid)
        return cls(pid, its.start_ticks) if its is not None and its.alive else None

    def alive(self) -> bool:
        """Return whether this process is alive, and its pid does not belong to a later process."""
        its = stat(self.pid)
        if its is None:
            # /proc cannot be read without a free descriptor. Then any process with this pid counts as this one.
            return exists(self.pid)
        return its.alive and its.start_ticks == self.start_ticks


# --- all processes -------------------------------------------------------------------------------------------------


def pids() -> list[int]:
    """Return the pid of every visible process."""
    return [int(name) for name in os.listdir(PROC_ROOT) if name.isdecimal()]


def stats() -> dict[int, Stat]:
    """Return the fields of every visible process, by pid."""
    return {pid: its for pid in pids() if (its := stat(pid)) is not None}


def children(of: Mapping[int, Stat] | None = None) -> dict[int, list[int]]:
    """Return the pids of each process's children, including dead ones. `of` is a result of `stats`, if there is one."""
    below: dict[int, list[int]] = {}
    for pid, its in (stats() if of is None else of).items():
        below.setdefault(its.parent, []).append(pid)
    return below


# --- one process ---------------------------------------------------------------------------------------------------


def exists(pid: int) -> bool:
    """Return whether a process with this pid exists, including zombies."""
    return (PROC_ROOT / str(pid)).exists()


def stat(pid: int | str) -> Stat | None:
    """Return a process's state, relatives and use of resources. pid: or "self/task/ID" for a thread of this process."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # The name before this may contain any character.
    if len(fields) < _STAT_FIELDS:
        return None
    own_ticks = int(fields[11]) + int(fields[12])
    return Stat(
        fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        own_ticks=own_ticks,
        cpu_ticks=own_ticks + int(fields[13]) + int(fields[14]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        core=int(fields[36]),
        wait_status=int(fields[49]),
    )


def status(pid: int, name: str) -> str:
    """Return a line of /proc/PID/status by its name; "" if the kernel has no such line."""
    lines = read(f"/proc/{pid}/status").decode(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")


def parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if there is none."""
    return int(status(pid, "PPid") or 0)


def innermost_pid(pid: int) -> int:
    """Return a process's pid in its own pid namespace; 0 if the kernel does not report it."""
    return int((status(pid, "NSpid") or "0").split()[-1])


def owner(pid: int) -> int | None:
    """Return the id of the user that a process belongs to."""
    try:
        return (PROC_ROOT / str(pid)).stat().st_uid
    except OSError:
        return None


def program(pid: int) -> str:
    """Return the name of a process's program, at most 15 bytes."""
    return read(f"/proc/{pid}/comm").decode(errors="replace").rstrip("\n")


def arguments(pid: int) -> list[str]:
    """Return the words of a process's command line."""
    return [word.decode(errors="replace") for word in read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]


def environment(pid: int | str) -> dict[str, str]:
    """Return the variables that a process was started with."""
    pairs = (os.fsdecode(word).partition("=") for word in read(f"/proc/{pid}/environ").split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def executable(pid: int) -> str:
    """Return the path of the program that a process runs, as the kernel writes it."""
    return _link(f"/proc/{pid}/exe")


def working_folder(pid: int) -> str:
    """Return the folder that a process runs in."""
    return _link(f"/proc/{pid}/cwd")


def namespace(kind: str, pid: int | str = "self") -> str:
    """Return a namespace of a process by its kind (namespaces(7)), such as "pid:[4026531836]"."""
    return _link(f"/proc/{pid}/ns/{kind}")


def thread_names(pid: int) -> list[str]:
    """Return the names of a process's threads, at most 15 bytes each, without threads that end meanwhile."""
    names = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            names += read(f"/proc/{pid}/task/{thread}/comm").decode(errors="replace").splitlines()
    return names


def mapped(pid: int) -> bytes:
    """Return a process's memory mappings, one per line, with the paths of mapped files."""
    return read(f"/proc/{pid}/maps")


def moved_bytes(pid: int) -> int:
    """Return how many bytes a process has read and written so far, in files and pipes."""
    return sum(numbers_in(f"/proc/{pid}/io", b":", b"rchar", b"wchar"))


def storage_bytes(pid: int | str = "self") -> tuple[int, int] | None:
    """Return the bytes that a process has read from storage and written to it so far."""
    counts = numbers_in(f"/proc/{pid}/io", b":", b"read_bytes", b"write_bytes")
    return (counts[0], counts[1]) if len(counts) == 2 else None


def core_wait_ns(pid: int | str) -> int | None:
    """Return the nanoseconds in which a thread, or a process's main thread, was runnable and got no core."""
    fields = read(f"/proc/{pid}/schedstat").split()
    return int(fields[1]) if len(fields) > 1 else None


def kernel_function(pid: int) -> str:
    """Return the kernel function that a process waits in."""
    return read(f"/proc/{pid}/wchan").decode(errors="replace").strip("0 \n")


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


def descriptor_path(descriptor: int, pid: int | str = "self") -> str:
    """Return a path that opens a process's descriptor anew."""
    return f"/proc/{pid}/fd/{descriptor}"


def descriptor_link(descriptor: int, pid: int | str = "self") -> str:
    """Return the target of a descriptor's link in /proc, such as a path or "pipe:[123]"."""
    return _link(descriptor_path(descriptor, pid))


def descriptors(pid: int) -> Iterator[tuple[int, str]]:
    """Yield every descriptor of a process with its `descriptor_link`, the highest first."""
    with contextlib.suppress(OSError):
        for descriptor in sorted(map(int, os.listdir(f"/proc/{pid}/fd")), reverse=True):
            if link := descriptor_link(descriptor, pid):  # Otherwise it was closed meanwhile.
                yield descriptor, link


def descriptors_readable(pid: int) -> bool:
    """Return whether this process may read the descriptors of another, and other data with the same protection."""
    return os.access(f"/proc/{pid}/fd", os.R_OK | os.X_OK)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


# --- this process and its machine ----------------------------------------------------------------------------------


def core_ticks() -> dict[int, list[int]]:
    """Return each online core's line in /proc/stat (proc_stat(5)), by the core's number."""
    rows: dict[int, list[int]] = {}
    for line in read("/proc/stat").splitlines():
        name, *fields = line.split()
        if name[:3] == b"cpu" and name != b"cpu":
            rows[int(name[3:])] = [int(field) for field in fields]
    return rows


def ptrace_scope() -> int:
    """Return Yama's level of restriction of debuggers, from 0 (none, or no Yama) to 3 (attaching is impossible)."""
    text = read(str(PTRACE_SCOPE)).strip()
    return int(text) if text.isdigit() else 0


@functools.cache
def boot_id() -> str:
    """Return the identity of this boot of the machine. It is read only once, because a later read may find no free
    descriptor.
    """
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def allow_most_files() -> None:
    """Raise this process's soft limit of open files and sockets, which is often 1,024, to the hard limit."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
