"""Whether the kernel killed processes for want of memory, by its counters. Standard library only.

A killed process is told nothing: it ends by SIGKILL, as if somebody had done it by hand. The counters are `oom_kill` in
`memory.events` of a cgroup (version 2) or in `memory.oom_control` (version 1), and of all of the host in /proc/vmstat:
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ddpmon.runs.proc import ROOT

_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class MemoryKills:
    """How many processes were killed so far; None where nothing counts them."""

    cgroup: int | None
    """Of this process's memory cgroup, or of the closest above it that counts."""
    host: int | None

    def since(self, before: MemoryKills) -> str:
        """Where more were killed than before: "cgroup", else "host", else ""."""
        if self.cgroup is not None and before.cgroup is not None:
            return "cgroup" if self.cgroup > before.cgroup else ""  # the host's others are not ours
        return "host" if self.host is not None and before.host is not None and self.host > before.host else ""


def count(proc: Path = ROOT) -> MemoryKills:
    """What the counters say now."""
    files = _cgroup_files(proc)
    cgroup = next((kills for file in files if (kills := _kills(file)) is not None), None)
    return MemoryKills(cgroup, _kills(proc / "vmstat"))


def _kills(file: Path) -> int | None:
    line = _KILLS.search(_read(file))
    return int(line[1]) if line else None


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _cgroup_files(proc: Path) -> list[Path]:
    """The files that may count for this process, the closest cgroup's first."""
    paths: dict[str, str] = {}
    for line in _read(proc / "self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if not controllers or "memory" in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    files: list[Path] = []
    for line in _read(proc / "self/mountinfo").splitlines():
        mount, _, after_dash = line.partition(" - ")
        (_, _, _, root, mounted, *_), (kind, _, options, *_) = (
            [*part.split(), "", "", "", "", ""] for part in (mount, after_dash)
        )
        if kind not in paths or not mounted or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        inside, top = Path(paths[kind]), Path(mounted)
        folder = top / inside.relative_to(root) if inside.is_relative_to(root) else top
        if kind == "cgroup":
            files.insert(0, folder / "memory.oom_control")  # there, no other file counts memory
        else:
            above = [place for place in (folder, *folder.parents) if place.is_relative_to(top)]
            files += [place / "memory.events" for place in above]
    return files
