"""The run's folder as a rank finds it: only if it is there and this user's alone."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from ddpmon.messages.folder import TAILS, pack_tail
from ddpmon.probe import run_settings


def private_folder(name: str) -> str | None:
    """Return a folder inside the run's, made if it is not there; None where none can be had (another machine)."""
    run = run_settings.current().folder
    if not run:
        return None
    inside = os.path.join(run, name)
    try:
        if not _is_ours(run):
            return None
        with contextlib.suppress(FileExistsError):
            os.mkdir(inside, 0o700)
        return inside if _is_ours(inside) else None
    except OSError:
        return None


def _is_ours(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def leave_tail(rank: int, frames: Sequence[bytes]) -> bool:
    """Leave for a later hub what none took before this rank ended, whole or not at all; return whether it did."""
    inside = private_folder(TAILS)
    if inside is None:
        return False
    path = os.path.join(inside, f"{rank}-{os.getpid()}")
    draft = f"{path}.new"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(pack_tail(frames))
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        return False
    return True
