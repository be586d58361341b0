"""Connects to a socket of a run: through a folder that is this user's alone, or not at all.

The folder lies where cleaners remove and strangers make what they like. So it is opened, looked at through that
descriptor, and the socket is reached through the descriptor too: whatever comes to stand under the path later, a
connection that ZeroMQ makes again by itself leads into the folder that was looked at, where only this user (and root)
can make a socket.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zmq

_IPC = "ipc://"


class GuardedSocket:
    """Connects a socket to an address, and once more where the folder of it has been replaced."""

    def __init__(self, socket: zmq.Socket[bytes], address: str) -> None:
        self._socket = socket
        self._folder, _, self._name = address.removeprefix(_IPC).rpartition("/")
        self._descriptor = -1
        self._connected_folder: tuple[int, int] | None = None
        """Device and inode of the folder behind the descriptor."""

    def keep(self) -> bool:
        """Connect where that is due and safe; says whether it did. What was sent before may then be lost."""
        identity = folder_identity(self._folder)
        if identity is None or identity == self._connected_folder:
            return False  # gone: a connection that exists lives on without it
        descriptor = opened_folder(self._folder)
        if descriptor is None:
            return False
        self.close()
        self._descriptor, self._connected_folder = descriptor, folder_identity(descriptor)
        self._socket.connect(self._endpoint())
        return True

    def close(self) -> None:
        """Disconnect."""
        if self._connected_folder is None:
            return
        with contextlib.suppress(OSError):  # ZMQError is one: the socket gave up by itself
            self._socket.disconnect(self._endpoint())
        os.close(self._descriptor)
        self._descriptor, self._connected_folder = -1, None

    def _endpoint(self) -> str:
        return f"{_IPC}/proc/self/fd/{self._descriptor}/{self._name}"


def wrong(folder: str, status: os.stat_result | None = None) -> str:
    """Return what is wrong with a folder of sockets, one line; "" if nothing is, or if there is none."""
    if status is None:
        try:
            status = os.lstat(folder)
        except OSError:
            return ""
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is not a folder, but perhaps a link"
    if status.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    return f"other users can enter the folder {folder}" if status.st_mode & 0o077 else ""


def opened_folder(folder: str) -> int | None:
    """Return a descriptor of a folder of sockets that is this user's alone; None where there is none."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not wrong(folder, os.fstat(descriptor)):
            return descriptor
    except OSError:  # closed by the script of a rank just now
        return None
    os.close(descriptor)
    return None


def folder_identity(place: str | int) -> tuple[int, int] | None:
    """Return device and inode of a folder, by its path or a descriptor; None where there is none."""
    try:
        status = os.stat(place, follow_symlinks=isinstance(place, int))
    except OSError:
        return None
    return status.st_dev, status.st_ino
