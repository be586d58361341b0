"""A disk of a few megabytes that a test can fill and free: a tmpfs of its own, so that ENOSPC is the kernel's."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted file system; `path` is its top folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / ".ballast"

    def fill(self) -> None:
        """Leave no byte free, also where something was deleted meanwhile."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def is_full(self) -> bool:
        try:
            (self.path / ".probe").write_bytes(bytes(4096))
        except OSError as error:
            return error.errno == errno.ENOSPC
        finally:
            with contextlib.suppress(OSError):
                (self.path / ".probe").unlink()
        return False


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[float], SmallDisk]]:
    """Mount a disk of so many megabytes. Ask for it before `home`, so that it outlives what runs there."""
    yield from _disks(tmp_path_factory)


@pytest.fixture(scope="module")
def module_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[float], SmallDisk]]:
    """The same for all tests of a module."""
    yield from _disks(tmp_path_factory)


def _disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[float], SmallDisk]]:
    mounted: list[Path] = []

    def mount(megabytes: float = 8.0) -> SmallDisk:
        folder = tmp_path_factory.mktemp("disk")
        options = f"size={int(megabytes * 1024)}k,mode=0700,uid={os.getuid()}"
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            pytest.skip(f"no disk can be mounted here: {made.stderr.strip()}")
        mounted.append(folder)
        return SmallDisk(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=False)
