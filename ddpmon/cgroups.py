"""Finds the cgroups of this process. Standard library only.

The kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst describe the files in their folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ddpmon.proc import PROC_ROOT


class Cgroup(NamedTuple):
    """A cgroup that counts this process's use of a resource, and may limit it."""

    folder: Path
    version: int


def cgroups_of(controller: str, proc: Path = PROC_ROOT) -> list[Cgroup]:
    """Return the cgroups of this process under a controller ("memory", "cpu"), the closest first.

    Of cgroup version 1, only the closest cgroup is returned. If a cgroup of version 1 has the controller, no cgroup of
    version 2 has it.
    """
    paths: dict[str, str] = {}
    for line in read(proc / "self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if not controllers or controller in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    found: list[Cgroup] = []
    for kind, options, root, mounted in mounts(proc):
        if kind not in paths or not mounted or (kind == "cgroup" and controller not in options.split(",")):
            continue
        inside, top = Path(paths[kind]), Path(mounted)
        folder = top / inside.relative_to(root) if inside.is_relative_to(root) else top
        if kind == "cgroup":
            found.insert(0, Cgroup(folder, 1))
        else:
            above = [place for place in (folder, *folder.parents) if place.is_relative_to(top)]
            found += [Cgroup(place, 2) for place in above]
    return found


def mounts(proc: Path = PROC_ROOT) -> Iterator[tuple[str, str, str, str]]:
    """Yield the kind, options, root and mount point of each mounted file system."""
    for line in read(proc / "self/mountinfo").splitlines():
        mount, _, after_dash = line.partition(" - ")
        (_, _, _, root, mounted, *_), (kind, _, options, *_) = (
            [*part.split(), "", "", "", "", ""] for part in (mount, after_dash)
        )
        yield kind, options, root, re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), mounted)


def read(file: Path) -> str:
    """Return the text of a kernel file; "" if there is none."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
