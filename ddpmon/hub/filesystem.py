"""On what kind of file system a path is: a write-ahead log is safe on the disks of this machine alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "overlay", "tmpfs", "ramfs", "aufs"}
)
"""File systems of one machine. Of all others (NFS, CIFS, Lustre, GPFS, FUSE, …) it is not known that what one process
maps is what another one sees, on which a write-ahead log depends (sqlite.org/wal.html)."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def kind(path: Path) -> str:
    """The type of the file system that holds a path, as /proc/self/mountinfo names it; "" where that is not known."""
    wanted = os.path.realpath(path)
    best, found = -1, ""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        mount, _, mounted = line.partition(" - ")
        fields = mount.split()
        if len(fields) < 5 or not mounted:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of two at one place the later one covers the other
            best, found = len(point), mounted.split()[0]
    return found


def is_local(path: Path) -> bool:
    """Whether a path is on a disk of this machine, as far as is known."""
    return kind(path) in LOCAL
