"""Where a run's folder and its sockets are, and that nobody else can enter them. Standard library only."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from ddpmon.errors import UnsafePathError

SOCKET_PATH_MAX = 107


def home() -> Path:
    """The folder of all that ddpmon keeps."""
    if path := os.environ.get("DDPMON_HOME"):
        return Path(path).absolute()
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "ddpmon"
    try:
        return Path.home() / ".local" / "state" / "ddpmon"
    except RuntimeError:  # as in a container with a user of its own
        raise UnsafePathError(
            "this user has no home folder: neither HOME nor an entry in passwd; set DDPMON_HOME"
        ) from None


def runs_dir() -> Path:
    """The folder of all runs."""
    return home() / "runs"


def run_dir(run_id: str) -> Path:
    """The folder of one run."""
    return runs_dir() / run_id


def socket_dir(run_id: str) -> Path:
    """The folder of one run's sockets."""
    root = os.environ.get("DDPMON_RUNTIME_DIR") or f"/tmp/ddpmon-{os.getuid()}"  # noqa: S108  owner and mode are checked
    return Path(root) / run_id


def ingest_address(run_id: str) -> str:
    """Where the hub of a run listens for its ranks."""
    return f"ipc://{socket_dir(run_id) / 'ingest.sock'}"


def view_address(run_id: str) -> str:
    """Where the hub of a run listens for viewers."""
    return f"ipc://{socket_dir(run_id) / 'view.sock'}"


def private_dir(path: Path) -> Path:
    """Make a folder that only this user can enter, or check that it is one; UnsafePathError says what is wrong."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise UnsafePathError(
            f"cannot make {path}: {error.strerror}; set DDPMON_HOME or DDPMON_RUNTIME_DIR elsewhere"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafePathError(f"{path} is no folder (a link?); remove it or set DDPMON_RUNTIME_DIR elsewhere")
    if status.st_uid != os.getuid():
        raise UnsafePathError(f"{path} belongs to another user; set DDPMON_RUNTIME_DIR elsewhere")
    if status.st_mode & 0o077:
        raise UnsafePathError(f"{path} can be entered by others; chmod 700 it or set DDPMON_RUNTIME_DIR elsewhere")
    return path


def make_socket_dir(run_id: str, *, exclusive: bool = False) -> Path:
    """Make and check the folder of a run's sockets, and that a socket's path fits into it.

    exclusive: FileExistsError if it is there already.
    """
    path = socket_dir(run_id)
    longest = len(os.fsencode(path / "ingest.sock"))
    if longest > SOCKET_PATH_MAX:
        raise UnsafePathError(
            f"{path}: a socket's path holds {SOCKET_PATH_MAX} bytes; set DDPMON_RUNTIME_DIR to a shorter one"
        )
    private_dir(path.parent)
    if exclusive:
        with contextlib.suppress(FileNotFoundError):  # a cleaner was faster
            path.mkdir(mode=0o700)
    return private_dir(path)


def remove_sockets(run_id: str) -> None:
    """Take a run's sockets away once nothing listens on them."""
    shutil.rmtree(socket_dir(run_id), ignore_errors=True)
