"""Settings of this process's run: its id, its hub, and its folder, which only this user may be able to access."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from ddpmon.messages.folder import TAILS, pack_tail


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run: its hub's address, its folder, and how its ranks may find other hubs."""

    run_id: str
    socket: str
    """Address of the hub; "" if this process is not watched."""
    folder: str = ""
    """Path of the run's folder; "" if it has none on this machine."""
    alone: bool = False
    """True if no rank is or will be on another machine."""
    hub_given: bool = False
    """True if the hubs of several machines were given the root hub's address."""
    attached: bool = False
    """True if the process was running before ddpmon attached to it."""


_given: RunSettings | None = None


def override_environment(settings: RunSettings | None) -> None:
    """Set the settings to use instead of the environment's; None to use the environment's again."""
    global _given
    _given = settings


def in_force() -> RunSettings:
    """Return the current settings."""
    if _given is not None:
        return _given
    return RunSettings(
        run_id=os.environ.get("DDPMON_RUN_ID", ""),
        socket=os.environ.get("DDPMON_SOCKET", ""),
        folder=os.environ.get("DDPMON_RUN_DIR", ""),
        alone=os.environ.get("DDPMON_ALONE") == "1",
        hub_given=os.environ.get("DDPMON_HUB_GIVEN") == "1",
    )


def private_folder(name: str) -> str | None:
    """Return a folder inside the run's, created if missing; None if this is not possible, as on another machine."""
    run = in_force().folder
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
    """Write frames that no hub received into the run's folder, for a later hub. Return whether all were written."""
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
