"""Connections to the sockets of a run, only through a folder that belongs to this user alone.

The folder is in a shared place such as /tmp, where cleanup services may delete it and other users may create files. So
ddpmon opens and checks the folder through a descriptor, and connects to the socket through the same descriptor. If the
path is replaced later, a reconnect of ZeroMQ still leads into the folder that was checked, where only this user (and
root) can create a socket.
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
    """Connects a ZeroMQ socket to an address, and connects it again when the address's folder has been replaced."""

    def __init__(self, socket: zmq.Socket[bytes], address: str) -> None:
        self._socket = socket
        self._folder, _, self._name = address.removeprefix(_IPC).rpartition("/")
        self._descriptor = -1
        self._connected_folder: tuple[int, int] | None = None
        """Device and inode of the folder that the descriptor refers to."""

    def reconnect(self) -> bool:
        """Connect if the folder is new and safe, and return whether a connection was made. If so, messages sent before
        may be lost.
        """
        identity = folder_identity(self._folder)
        if identity is None or identity == self._connected_folder:
            return False  # If the folder is gone, an existing connection works without it.
        descriptor = opened_folder(self._folder)
        if descriptor is None:
            return False
        self.close()
        self._descriptor, self._connected_folder = descriptor, folder_identity(descriptor)
        self._socket.connect(self._endpoint())
        return True

    def close(self) -> None:
        """Disconnect the socket and close the folder's descriptor."""
        if self._connected_folder is None:
            return
        with contextlib.suppress(OSError):  # A ZMQError is an OSError: the socket has disconnected itself.
            self._socket.disconnect(self._endpoint())
        os.close(self._descriptor)
        self._descriptor, self._connected_folder = -1, None

    def _endpoint(self) -> str:
        return f"{_IPC}/proc/self/fd/{self._descriptor}/{self._name}"


def folder_problem(folder: str, status: os.stat_result | None = None) -> str:
    """Return one line that says why a folder of sockets is unsafe, or "" if the folder is safe or does not exist."""
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
    """Return a descriptor of a folder of sockets, or None unless it exists and belongs to this user alone."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not folder_problem(folder, os.fstat(descriptor)):
            return descriptor
    except OSError:  # The training script has just closed this descriptor.
        return None
    os.close(descriptor)
    return None


def folder_identity(place: str | int) -> tuple[int, int] | None:
    """Return device and inode of the folder at a path or of an open descriptor, or None if there is no such folder."""
    try:
        status = os.stat(place, follow_symlinks=isinstance(place, int))
    except OSError:
        return None
    return status.st_dev, status.st_ino
