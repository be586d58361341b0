"""Reads the kernel's counts of this process, its threads and its host's network from /proc.

Every rank reads it once a second, in caches that training has emptied: there this takes half of what psutil takes.
None where the kernel does not say, or a container hides it.
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
"""Fields of /proc/PID/stat, counted from the state on (proc(5))."""
_RECEIVED, _SENT = 0, 8
"""Fields of /proc/net/dev behind a card's name."""
_RUN_DELAY = 1
"""Field of schedstat: nanoseconds in which the thread could run and got no core."""
NO_LIMIT = 1 << 60
"""Bytes from which on a limit of cgroup version 1 is none."""
_PRIVATE = (b"Private_Clean", b"Private_Dirty", b"Private_Hugetlb", b"SwapPss")
_MOST_BYTES = 65_536
"""Largest file: a host with hundreds of network cards has so much."""


def threads_and_memory() -> tuple[int, int] | None:
    """Return the number of this process's threads, and its resident memory in bytes."""
    stat = _read("/proc/self/stat")
    try:
        fields = stat[stat.rindex(b")") + 2 :].split()  # its name comes before, and may hold anything
        return int(fields[_THREADS]), int(fields[_RSS_PAGES]) * _PAGE_BYTES
    except (IndexError, ValueError):
        return None


def storage_bytes(pid: int | str = "self") -> tuple[int, int] | None:
    """Return what a process had read from storage and written to it so far."""
    counts = dict(line.split(b": ", 1) for line in _read(f"/proc/{pid}/io").splitlines() if b": " in line)
    try:
        return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])
    except (KeyError, ValueError):
        return None


def network_bytes() -> dict[str, tuple[int, int]]:
    """Return what each network card of this host sent and received so far; the kernel does not count it by process."""
    cards: dict[str, tuple[int, int]] = {}
    for line in _read("/proc/self/net/dev").decode(errors="replace").splitlines()[2:]:
        name, _, counts = line.rpartition(":")
        fields = counts.split()
        if len(fields) > _SENT:
            cards[name.strip()] = int(fields[_SENT]), int(fields[_RECEIVED])
    return cards


def storage_wait_us() -> int | None:
    """Return how long some process of this host waited for storage so far, network file systems included (psi(7))."""
    some = _read("/proc/pressure/io").partition(b"\n")[0]
    try:
        return int(some.rpartition(b"total=")[2])
    except ValueError:
        return None


def idle_core_seconds() -> float | None:
    """Return how long the cores of this host were idle so far, added up (proc_uptime(5)); /proc/stat costs far more."""
    try:
        return float(_read("/proc/uptime").split()[1])
    except (ValueError, IndexError):
        return None


class Times(NamedTuple):
    """What a process used so far (proc(5))."""

    parent: int
    ticks: int
    """Processor time of all its threads, in clock ticks."""
    core: int
    """The core that its main thread ran on last."""


def pids() -> list[int]:
    """Return the pid of every process that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def times(pid: int) -> Times | None:
    """Return what a process used so far; None where it is gone."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # its name comes before, and may hold anything
    if len(fields) <= _CORE:
        return None
    return Times(int(fields[_PARENT]), int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]), int(fields[_CORE]))


def state(number: int, *, of_own_thread: bool) -> str:
    """Return the state of a process, or of a thread of this one: R runs, D waits for storage; "" where it is gone."""
    stat = _read(f"/proc/self/task/{number}/stat" if of_own_thread else f"/proc/{number}/stat")
    return stat.rpartition(b")")[2].strip()[:1].decode(errors="replace")


def is_read_only(pid: int, descriptor: int) -> bool:
    """Return whether a process has opened a file to read it alone."""
    flags = next(
        (line for line in _read(f"/proc/{pid}/fdinfo/{descriptor}").splitlines() if line[:6] == b"flags:"), b""
    )
    return bool(flags) and int(flags.split()[1], 8) & (os.O_ACCMODE | os.O_DIRECTORY) == os.O_RDONLY


def swapped_bytes() -> int:
    """Return how much of this process's memory is in swap."""
    return 1024 * next(iter(_fields("/proc/self/status", b":", b"VmSwap")), 0)


def arguments(pid: int) -> list[bytes]:
    """Return the words of a process's command line; none where it is gone."""
    return _read(f"/proc/{pid}/cmdline").split(b"\0")


def program(pid: int) -> bytes:
    """Return the name of a process's program; empty where it is gone."""
    return _read(f"/proc/{pid}/comm").rstrip(b"\n")


def environment(pid: int) -> dict[bytes, bytes]:
    """Return the variables that a process was started with; none of another user's."""
    pairs = (word.partition(b"=") for word in _read(f"/proc/{pid}/environ").split(b"\0"))
    return {name: value for name, _, value in pairs}


def parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 where there is none."""
    return next(iter(_fields(f"/proc/{pid}/status", b":", b"PPid")), 0)


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (SigCgt of proc(5))."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """Return the memory that this process's host, or the one of its cgroups with the least, can still give out."""
    of_host = _fields(str(proc / "meminfo"), b":", b"MemAvailable")
    left = [1024 * kib for kib in of_host[:1]] + [left for each in _cgroups(proc) if (left := _left(each)) is not None]
    return min(left, default=None)


_cgroups = functools.cache(functools.partial(cgroups_of, "memory"))


def _left(cgroup: Cgroup) -> int | None:
    """Return what a cgroup has left of its limit; files in the page cache make way. None: it has no limit."""
    limit, used, prefix = (
        ("memory.max", "memory.current", b"") if cgroup.version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_")
    )  # fmt: skip
    try:
        most = int(_read(f"{cgroup.folder}/{limit}"))  # version 2 says "max" where there is none
        if most >= NO_LIMIT:
            return None
        taken = int(_read(f"{cgroup.folder}/{used}"))
    except ValueError:
        return None
    cache = _fields(f"{cgroup.folder}/memory.stat", b" ", prefix + b"active_file", prefix + b"inactive_file")
    return max(0, most - taken + sum(cache))


def private_bytes(pid: int) -> int | None:
    """Return the memory of a process that no other one shares (proc_pid_smaps(5)): the kernel walks all its pages."""
    parts = _fields(f"/proc/{pid}/smaps_rollup", b":", *_PRIVATE)
    return 1024 * sum(parts) if parts else None


def _fields(path: str, mark: bytes, *names: bytes) -> list[int]:
    """Return the numbers that stand behind these names in a file, as far as they are there."""
    rows = (line.partition(mark) for line in _read(path).splitlines())
    return [int(value.split()[0]) for name, _, value in rows if name in names and value.strip()[:1].isdigit()]


def run_delay_ns(thread: int, pid: int | str = "self") -> int | None:
    """Return how long a thread of a process could run and got no core, since it began."""
    try:
        return int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[_RUN_DELAY])
    except (IndexError, ValueError):
        return None


def _read(path: str) -> bytes:
    """A file of the kernel's, read at once; empty where there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST_BYTES)
    except OSError:
        return b""
    finally:
        with contextlib.suppress(OSError):  # the script closed it just now
            os.close(file)
