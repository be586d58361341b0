"""The run's folder as a rank finds it: through the environment, and only if it is there and this user's alone."""

from __future__ import annotations

import contextlib
import os
import stat


def folder(name: str) -> str | None:
    """A folder inside the run's, made if it is not there; None where none can be had (another machine, a container)."""
    run = os.environ.get("DDPMON_RUN_DIR")
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
