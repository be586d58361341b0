"""Tells which of a run's processes can be seen here: those of this boot and pid namespace. Standard library only."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ddpmon.runs.proc import MOUNTS, boot_id, pid_namespace

_LOCAL = frozenset(
    {
        "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs",
        "tmpfs", "ramfs", "overlay", "aufs", "squashfs", "vfat", "exfat", "ntfs3",
    }
)  # fmt: skip
"""File systems that one kernel alone writes to. Others count as shared: NFS, CIFS, Lustre, GPFS, FUSE, 9p. Of those it
is not known either that what one process maps is what another one sees, on which SQLite's write-ahead log depends
(sqlite.org/wal.html)."""


class Sight(Enum):
    """Extent to which the processes of a place can be seen from here."""

    PIDS = "pids"
    """Its pids are ours: processes can be seen and signalled."""
    KERNEL = "kernel"
    """The same kernel, another pid namespace: a lock tells who lives, and nobody can be signalled."""
    NONE = "none"
    """Another machine, or this one before it was restarted."""


@dataclass(frozen=True)
class PidSpace:
    """Range in which pids are valid: a machine, one boot of it, and a pid namespace there; "": unknown."""

    host: str
    boot_id: str
    pid_namespace: str = ""

    def sight(self) -> Sight:
        """Return how much of it can be seen from here."""
        ours = here()
        if self.boot_id != ours.boot_id or (not self.boot_id and self.host != ours.host):
            return Sight.NONE
        same = not self.pid_namespace or not ours.pid_namespace or self.pid_namespace == ours.pid_namespace
        return Sight.PIDS if same else Sight.KERNEL


def here() -> PidSpace:
    """Return where this process is."""
    return PidSpace(platform.node(), boot_id(), pid_namespace())


def is_local(path: Path, mounts: Path = MOUNTS) -> bool:
    """Return whether a path is on a file system that no other machine can write to, as far as its type says.

    In a chroot nothing need be mounted above it, as far as the kernel tells: then it is local if it is on a disk.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    real = Path(os.path.realpath(path))
    mounted_at, file_system = Path(), ""
    for line in lines:
        _, place, kind, *_ = [*line.split(), "", "", ""]
        if not kind:
            continue
        top = Path(place.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
        # the later of two at one place hides the earlier
        if real.is_relative_to(top) and len(top.parts) >= len(mounted_at.parts):
            mounted_at, file_system = top, kind
    return file_system in _LOCAL if file_system else _is_on_a_disk(real)


def _is_on_a_disk(path: Path) -> bool:
    """Return whether its file system has a device: those of networks, of memory and FUSE's have none of their own."""
    try:
        return os.major(os.stat(path).st_dev) != 0
    except OSError:
        return False
