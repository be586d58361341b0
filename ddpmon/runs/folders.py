"""Finds a run's folder and its sockets, and makes sure that no other user can enter them. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from ddpmon.errors import UnsafePathError

SOCKET_PATH_MAX = 107
MAX_LINKS = 40
"""Largest number of symbolic links to follow, the same as in the kernel."""
HOME_VARIABLE, RUNTIME_VARIABLE = "DDPMON_HOME", "DDPMON_RUNTIME_DIR"


def home() -> Path:
    """Return the folder of all files that ddpmon stores."""
    if path := os.environ.get(HOME_VARIABLE):
        return Path(path).absolute()
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "ddpmon"
    try:
        return Path.home() / ".local" / "state" / "ddpmon"
    except RuntimeError:  # This happens in a container with a user that passwd does not list.
        raise UnsafePathError(
            "this user has no home folder, because HOME is not set and passwd has no entry; set DDPMON_HOME to a folder"
        ) from None


def runs_dir() -> Path:
    """Return the folder of all runs."""
    return home() / "runs"


def run_dir(run_id: str) -> Path:
    """Return the folder of one run."""
    return runs_dir() / run_id


def runtime_dir() -> Path:
    """Return the folder of the sockets of all runs."""
    return Path(os.environ.get(RUNTIME_VARIABLE) or f"/tmp/ddpmon-{os.getuid()}")  # noqa: S108  owner and mode are checked


def socket_dir(run_id: str) -> Path:
    """Return the folder of one run's sockets."""
    return runtime_dir() / run_id


def ingest_address(run_id: str) -> str:
    """Return the address at which a run's hub listens for its ranks."""
    return f"ipc://{socket_dir(run_id) / 'ingest.sock'}"


def view_address(run_id: str) -> str:
    """Return the address at which a run's hub listens for viewers."""
    return f"ipc://{socket_dir(run_id) / 'view.sock'}"


def private_dir(path: Path, variable: str = HOME_VARIABLE) -> Path:
    """Create a folder that only this user can enter, or check that it is one. Symbolic links may lead to it.

    Args:
        path: The folder.
        variable: The environment variable that moves it elsewhere; errors name it.

    Raises:
        UnsafePathError: Others can enter the folder or replace a link to it, or it cannot be created.

    """
    try:
        target = _link_target(path)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = target.lstat()
    except OSError as error:
        raise UnsafePathError(f"cannot make {path}: {error.strerror}; set {variable} to another folder") from None
    except _StrangeLinkError as error:
        raise UnsafePathError(f"{error}; remove it, or set {variable} to another folder") from None
    if status.st_uid != os.getuid():
        raise UnsafePathError(f"the folder {path} belongs to another user; set {variable} to another folder")
    if status.st_mode & 0o077:
        raise UnsafePathError(
            f"other users can enter the folder {path}; run chmod 700 on it, or set {variable} to another folder"
        )
    return path


def missing_folders(path: Path) -> list[Path]:
    """Return the folders of a path that do not exist yet, innermost first."""
    target = Path(os.path.realpath(path))
    return [folder for folder in (target, *target.parents) if not folder.exists()]


class _StrangeLinkError(Exception):
    """Reports a symbolic link of another user, who could change its target at any time."""


def _link_target(path: Path) -> Path:
    """Follow links that belong to this user or to root, until the path is not a link; return that path."""
    for _ in range(MAX_LINKS):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(status.st_mode):
            return path
        if status.st_uid not in {0, os.getuid()}:
            raise _StrangeLinkError(f"{path} is a symbolic link of another user")
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def make_socket_dir(run_id: str, *, exclusive: bool = False) -> Path:
    """Create and check the folder of a run's sockets, and check that a socket's path fits.

    Args:
        run_id: The run.
        exclusive: Raise FileExistsError if the folder exists already.

    """
    path = socket_dir(run_id)
    longest = len(os.fsencode(path / "ingest.sock"))
    if longest > SOCKET_PATH_MAX:
        raise UnsafePathError(
            f"{path}: this path is too long for a socket, which may have {SOCKET_PATH_MAX} bytes; set "
            "DDPMON_RUNTIME_DIR to a shorter path"
        )
    private_dir(path.parent, RUNTIME_VARIABLE)
    if exclusive:
        with contextlib.suppress(FileNotFoundError):  # A cleaner deleted the parent folder in between.
            path.mkdir(mode=0o700)
    return private_dir(path, RUNTIME_VARIABLE)


def remove_sockets(run_id: str) -> None:
    """Delete a run's socket folder once nothing listens there."""
    import shutil

    shutil.rmtree(socket_dir(run_id), ignore_errors=True)
