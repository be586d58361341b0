"""Reads the kernel's counters of this process, its threads and its host's network from /proc.

Every rank reads them once a second, with cold CPU caches, in half the time that psutil needs there.
Functions return None where the kernel does not report a value, or a container hides it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import NamedTuple

from ddpmon.cgroups import PROC, Cgroup, cgroups_of

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _THREADS, _RSS_PAGES, _CORE = 1, 11, 12, 17, 21, 36
"""Indices of fields of /proc/PID/stat, counted from the state (proc(5))."""
_RECEIVED, _SENT = 0, 8
"""Indices of fields of /proc/net/dev after the name of a network card."""
_RUN_DELAY = 1
"""Index of a field of schedstat: nanoseconds in which the thread was runnable and got no core."""
NO_LIMIT = 1 << 60
"""A limit of cgroup version 1 of this many bytes or more means that there is no limit."""
_PRIVATE = (b"Private_Clean", b"Private_Dirty", b"Private_Hugetlb", b"SwapPss")
_MOST_BYTES = 65_536
"""Largest number of bytes to read of a file. A host with hundreds of network cards has that much."""


def threads_and_memory() -> tuple[int, int] | None:
    """Return the number of this process's threads, and its resident memory in bytes."""
    stat = _read("/proc/self/stat")
    try:
        fields = stat[stat.rindex(b")") + 2 :].split()  # The name in front may contain anything.
        return int(fields[_THREADS]), int(fields[_RSS_PAGES]) * _PAGE_BYTES
    except (IndexError, ValueError):
        return None


def storage_bytes(pid: int | str = "self") -> tuple[int, int] | None:
    """Return the bytes that a process has read from storage and written to it so far."""
    counts = dict(line.split(b": ", 1) for line in _read(f"/proc/{pid}/io").splitlines() if b": " in line)
    try:
        return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])
    except (KeyError, ValueError):
        return None


def network_bytes() -> dict[str, tuple[int, int]]:
    """Return {card: (bytes sent, bytes received)} of this host. The kernel does not count them by process."""
    cards: dict[str, tuple[int, int]] = {}
    for line in _read("/proc/self/net/dev").decode(errors="replace").splitlines()[2:]:
        name, _, counts = line.rpartition(":")
        fields = counts.split()
        if len(fields) > _SENT:
            cards[name.strip()] = int(fields[_SENT]), int(fields[_RECEIVED])
    return cards


def storage_wait_us() -> int | None:
    """Return the µs in which any process of this host waited for storage, including network file systems (psi(7))."""
    some = _read("/proc/pressure/io").partition(b"\n")[0]
    try:
        return int(some.rpartition(b"total=")[2])
    except ValueError:
        return None


def idle_core_seconds() -> float | None:
    """Return the summed idle seconds of this host's cores (proc_uptime(5)); reading /proc/stat costs far more."""
    try:
        return float(_read("/proc/uptime").split()[1])
    except (ValueError, IndexError):
        return None


class Times(NamedTuple):
    """Resources that a process has used so far (proc(5))."""

    parent: int
    ticks: int
    """CPU time of all its threads, in clock ticks."""
    core: int
    """Core on which its main thread ran last."""


def pids() -> list[int]:
    """Return the pid of every visible process."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def times(pid: int) -> Times | None:
    """Return the resources that a process has used so far; None if it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # The name in front may contain anything.
    if len(fields) <= _CORE:
        return None
    return Times(int(fields[_PARENT]), int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]), int(fields[_CORE]))


def state(number: int, *, of_own_thread: bool) -> str:
    """Return the state of a process, or of a thread of this one: "R" runs, "D" waits for storage, "" has ended."""
    stat = _read(f"/proc/self/task/{number}/stat" if of_own_thread else f"/proc/{number}/stat")
    return stat.rpartition(b")")[2].strip()[:1].decode(errors="replace")


def is_read_only(pid: int, descriptor: int) -> bool:
    """Return whether a process has opened a file only for reading."""
    flags = next(
        (line for line in _read(f"/proc/{pid}/fdinfo/{descriptor}").splitlines() if line[:6] == b"flags:"), b""
    )
    return bool(flags) and int(flags.split()[1], 8) & (os.O_ACCMODE | os.O_DIRECTORY) == os.O_RDONLY


def swapped_bytes() -> int:
    """Return how much of this process's memory is in swap."""
    return 1024 * next(iter(_fields("/proc/self/status", b":", b"VmSwap")), 0)


def arguments(pid: int) -> list[bytes]:
    """Return the words of a process's command line; [b""] if it has ended."""
    return _read(f"/proc/{pid}/cmdline").split(b"\0")


def program(pid: int) -> bytes:
    """Return the name of a process's program; b"" if it has ended."""
    return _read(f"/proc/{pid}/comm").rstrip(b"\n")


def environment(pid: int) -> dict[bytes, bytes]:
    """Return the environment variables that a process was started with; empty if it belongs to another user."""
    pairs = (word.partition(b"=") for word in _read(f"/proc/{pid}/environ").split(b"\0"))
    return {name: value for name, _, value in pairs}


def parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if there is none."""
    return next(iter(_fields(f"/proc/{pid}/status", b":", b"PPid")), 0)


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (SigCgt of proc(5))."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """Return the bytes that can still be allocated, by the host or by the tightest of this process's cgroups."""
    of_host = _fields(str(proc / "meminfo"), b":", b"MemAvailable")
    left = [1024 * kib for kib in of_host[:1]] + [left for each in _cgroups(proc) if (left := _left(each)) is not None]
    return min(left, default=None)


_cgroups = functools.cache(functools.partial(cgroups_of, "memory"))


def _left(cgroup: Cgroup) -> int | None:
    """Return the bytes that a cgroup has left below its limit, with its page cache; None if it has no limit."""
    limit, used, prefix = (
        ("memory.max", "memory.current", b"") if cgroup.version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_")
    )  # fmt: skip
    try:
        most = int(_read(f"{cgroup.folder}/{limit}"))  # Version 2 has "max" where there is no limit.
        if most >= NO_LIMIT:
            return None
        taken = int(_read(f"{cgroup.folder}/{used}"))
    except ValueError:
        return None
    cache = _fields(f"{cgroup.folder}/memory.stat", b" ", prefix + b"active_file", prefix + b"inactive_file")
    return max(0, most - taken + sum(cache))


def private_bytes(pid: int) -> int | None:
    """Return the bytes that only this process uses (proc_pid_smaps(5)). Costly: the kernel walks all its pages."""
    parts = _fields(f"/proc/{pid}/smaps_rollup", b":", *_PRIVATE)
    return 1024 * sum(parts) if parts else None


def _fields(path: str, mark: bytes, *names: bytes) -> list[int]:
    """Return the numbers after these names in a file, as far as it has them."""
    rows = (line.partition(mark) for line in _read(path).splitlines())
    return [int(value.split()[0]) for name, _, value in rows if name in names and value.strip()[:1].isdigit()]


def run_delay_ns(thread: int, pid: int | str = "self") -> int | None:
    """Return the nanoseconds in which a thread was runnable and got no core, since it began."""
    try:
        return int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[_RUN_DELAY])
    except (IndexError, ValueError):
        return None


def _read(path: str) -> bytes:
    """Return the content of a file of the kernel, read in one call; b"" if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST_BYTES)
    except OSError:
        return b""
    finally:
        with contextlib.suppress(OSError):  # The script may have just closed it.
            os.close(file)
