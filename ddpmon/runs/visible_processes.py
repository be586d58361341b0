"""Finds out which processes of a run are visible here: those of this boot and pid namespace. Standard library only."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ddpmon.proc import MOUNTS, boot_id, namespace

_LOCAL = frozenset(
    {
        "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs",
        "tmpfs", "ramfs", "overlay", "aufs", "squashfs", "vfat", "exfat", "ntfs3",
    }
)  # fmt: skip
"""File systems that only one kernel writes to. All others count as shared: NFS, CIFS, Lustre, GPFS, FUSE, 9p. SQLite's
write-ahead log needs memory that all its processes map, and shared file systems may not provide it
(sqlite.org/wal.html)."""


class Sight(Enum):
    """Degree to which this process can see the processes of a run, which may be on another machine."""

    PIDS = "pids"
    """The same pids are valid here: processes can be seen and signalled."""
    KERNEL = "kernel"
    """The same kernel but another pid namespace: a lock shows that a process lives, but nothing can signal it."""
    NONE = "none"
    """Another machine, or this machine before its last reboot."""


@dataclass(frozen=True)
class PidSpace:
    """The scope in which pids are unique: a machine, one boot of it, and a pid namespace. "" means unknown."""

    host: str
    boot_id: str
    pid_namespace: str = ""

    def sight(self) -> Sight:
        """Return how much of the processes in this scope is visible from here."""
        ours = here()
        if self.boot_id != ours.boot_id or (not self.boot_id and self.host != ours.host):
            return Sight.NONE
        same = not self.pid_namespace or not ours.pid_namespace or self.pid_namespace == ours.pid_namespace
        return Sight.PIDS if same else Sight.KERNEL


def here() -> PidSpace:
    """Return the scope of this process's pid."""
    return PidSpace(platform.node(), boot_id(), namespace("pid"))


def is_local(path: Path, mounts: Path = MOUNTS) -> bool:
    """Return whether a path is on a file system of a type that no other machine can write to.

    In a chroot the kernel may list no mount above the path: then the path is local if it is on a disk.
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
        # Of two mounts at the same place, the later one hides the earlier one.
        if real.is_relative_to(top) and len(top.parts) >= len(mounted_at.parts):
            mounted_at, file_system = top, kind
    return file_system in _LOCAL if file_system else _is_on_a_disk(real)


def _is_on_a_disk(path: Path) -> bool:
    """Return whether the file system has a device, unlike network file systems, tmpfs and FUSE."""
    try:
        return os.major(os.stat(path).st_dev) != 0
    except OSError:
        return False
