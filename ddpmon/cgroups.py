"""Memory cgroups of this process. Standard library only.

Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel describe the files in their folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class MemoryCgroup(NamedTuple):
    """A cgroup that counts the memory of this process, and may limit it."""

    folder: Path
    version: int


def memory_cgroups(proc: Path = PROC) -> list[MemoryCgroup]:
    """Return the memory cgroups of this process, the closest first.

    Of version 1 it is the closest alone; where there is one, none of version 2 counts memory.
    """
    paths: dict[str, str] = {}
    for line in read(proc / "self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if not controllers or "memory" in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    found: list[MemoryCgroup] = []
    for kind, options, root, mounted in _mounts(proc):
        if kind not in paths or not mounted or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        inside, top = Path(paths[kind]), Path(mounted)
        folder = top / inside.relative_to(root) if inside.is_relative_to(root) else top
        if kind == "cgroup":
            found.insert(0, MemoryCgroup(folder, 1))
        else:
            above = [place for place in (folder, *folder.parents) if place.is_relative_to(top)]
            found += [MemoryCgroup(place, 2) for place in above]
    return found


def _mounts(proc: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield the kind, options, root and mount point of each mounted file system."""
    for line in read(proc / "self/mountinfo").splitlines():
        mount, _, after_dash = line.partition(" - ")
        (_, _, _, root, mounted, *_), (kind, _, options, *_) = (
            [*part.split(), "", "", "", "", ""] for part in (mount, after_dash)
        )
        yield kind, options, root, mounted


def read(file: Path) -> str:
    """Return the text of a file of the kernel; empty where there is none."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
