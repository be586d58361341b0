"""Reads from the kernel's counters whether it killed processes because memory ran out. Standard library only.

SIGKILL itself does not show whether the kernel or a user sent it. The counters are `oom_kill` in a cgroup's
`memory.events` (version 2) or `memory.oom_control` (version 1), and in /proc/vmstat for the whole host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ddpmon.cgroups import Cgroup, cgroups_of, read
from ddpmon.proc import PROC_ROOT

_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class MemoryKills:
    """Number of processes that the kernel has killed so far; None if there is no counter."""

    cgroup: int | None
    """Kills in this process's memory cgroup, or in the closest cgroup above it that has a counter."""
    host: int | None

    def increased_since(self, before: MemoryKills) -> str:
        """Return "cgroup" or "host" if the kernel has killed processes there since `before`; "" if it has not."""
        if self.cgroup is not None and before.cgroup is not None:
            return "cgroup" if self.cgroup > before.cgroup else ""  # Kills elsewhere on the host are not this run's.
        return "host" if self.host is not None and before.host is not None and self.host > before.host else ""


def read_kill_counts(proc: Path = PROC_ROOT) -> MemoryKills:
    """Return the current values of the counters."""
    files = map(_counting_file, cgroups_of("memory", proc))
    cgroup = next((kills for file in files if (kills := _kill_count(file)) is not None), None)
    return MemoryKills(cgroup, _kill_count(proc / "vmstat"))


def _kill_count(file: Path) -> int | None:
    line = _KILLS.search(read(file))
    return int(line[1]) if line else None


def _counting_file(cgroup: Cgroup) -> Path:
    return cgroup.folder / ("memory.oom_control" if cgroup.version == 1 else "memory.events")
