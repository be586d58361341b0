"""Reads the kernel's counters of a rank's memory, and of its host's network, storage and cores.

Functions return None where the kernel does not report a value, or a container hides it.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ddpmon.cgroups import Cgroup, cgroups_of
from ddpmon.proc import PROC_ROOT, numbers_in, read

_RECEIVED, _SENT = 0, 8
"""Indices of fields of /proc/net/dev after the name of a network card."""
NO_LIMIT = 1 << 60
"""Number of bytes from which on a memory limit in cgroup version 1 means "no limit"."""
_PRIVATE = (b"Private_Clean", b"Private_Dirty", b"Private_Hugetlb", b"SwapPss")


def network_bytes() -> dict[str, tuple[int, int]]:
    """Return {card: (bytes sent, bytes received)} of this host. The kernel does not count them by process."""
    cards: dict[str, tuple[int, int]] = {}
    for line in read("/proc/self/net/dev").decode(errors="replace").splitlines()[2:]:
        name, _, counts = line.rpartition(":")
        fields = counts.split()
        if len(fields) > _SENT:
            cards[name.strip()] = int(fields[_SENT]), int(fields[_RECEIVED])
    return cards


def storage_wait_us() -> int | None:
    """Return the µs in which any process of this host waited for storage, including network file systems (psi(7))."""
    some = read("/proc/pressure/io").partition(b"\n")[0]
    try:
        return int(some.rpartition(b"total=")[2])
    except ValueError:
        return None


def idle_core_seconds() -> float | None:
    """Return the summed idle seconds of this host's cores (proc_uptime(5)); reading /proc/stat costs far more."""
    try:
        return float(read("/proc/uptime").split()[1])
    except (ValueError, IndexError):
        return None


def is_read_only(pid: int, descriptor: int) -> bool:
    """Return whether a process has opened a file only for reading."""
    flags = next((line for line in read(f"/proc/{pid}/fdinfo/{descriptor}").splitlines() if line[:6] == b"flags:"), b"")
    return bool(flags) and int(flags.split()[1], 8) & (os.O_ACCMODE | os.O_DIRECTORY) == os.O_RDONLY


def swapped_bytes() -> int:
    """Return how much of this process's memory is in swap."""
    return 1024 * next(iter(numbers_in("/proc/self/status", b":", b"VmSwap")), 0)


def memory_left_bytes(proc: Path = PROC_ROOT) -> int | None:
    """Return the bytes that can still be allocated, by the host or by the tightest of this process's cgroups."""
    of_host = numbers_in(str(proc / "meminfo"), b":", b"MemAvailable")
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
        most = int(read(f"{cgroup.folder}/{limit}"))  # Version 2 has "max" where there is no limit.
        if most >= NO_LIMIT:
            return None
        taken = int(read(f"{cgroup.folder}/{used}"))
    except ValueError:
        return None
    cache = numbers_in(f"{cgroup.folder}/memory.stat", b" ", prefix + b"active_file", prefix + b"inactive_file")
    return max(0, most - taken + sum(cache))


def private_bytes(pid: int) -> int | None:
    """Return the bytes that only this process uses (proc_pid_smaps(5)). Costly: the kernel walks all its pages."""
    parts = numbers_in(f"/proc/{pid}/smaps_rollup", b":", *_PRIVATE)
    return 1024 * sum(parts) if parts else None
