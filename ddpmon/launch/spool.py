"""Reads spools, into which the processes of a run print. Standard library only.

A spool is a pipe (`ddpmon.inject.ddpmon_spool` describes how it is made and named), or, where a process of the
run could not make one, the plain file that torchrun opens for a rank.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import Protocol

from ddpmon import proc

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PAGE = os.sysconf("SC_PAGESIZE")
_NAME = re.compile(r".*/ddpmon (\S+) ([^/]+) [0-9a-f]{16} \(deleted\)", re.DOTALL)
_MOVED_BYTES = 1 << 20
"""Most bytes to read from one pipe before the next pipe is read."""
_LOG = re.compile(r"launcher\.log|ranks/[^/]+/attempt_\d+/\d+/std(?:out|err)\.log")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def is_log(path: str) -> bool:
    """Return whether a path inside the run's logs is the log of a spool."""
    return _LOG.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


def log_of(link: str, run_id: str, folder: str) -> str | None:
    """Return the log that a descriptor belongs to; None if it is not a spool of this run.

    Args:
        link: Target of the descriptor's link in /proc.
        run_id: The run.
        folder: The folder in which torchrun creates its files.

    """
    name = _NAME.fullmatch(link)
    if name is not None:
        log = name[2].replace("|", "/") if name[1] == run_id else ""
    else:
        log = link[len(folder) + 1 :] if link.startswith(f"{folder}/") else ""
    return log if is_log(log) else None


def spools_in_use(run_id: str, spools: str, but: int) -> Iterator[tuple[str, str]]:
    """Yield each spool of a run that live processes have open: the descriptor's path in /proc, and the path of its log.

    Args:
        run_id: The run.
        spools: The folder in which torchrun creates its files.
        but: Pid of a process to leave out.

    """
    for pid in proc.pids():
        if pid == but:
            continue
        for descriptor, link in proc.descriptors(pid):
            log = log_of(link, run_id, spools)
            if log is not None:
                yield proc.descriptor_path(descriptor, pid), log


def open_spool(path: str) -> Spool:
    """Open the reading end of a spool, by its path or the path of its descriptor in /proc.

    Raises:
        OSError: It cannot be opened, or is not a pipe or file of this user.

    """
    status = os.stat(path)
    if status.st_uid == os.getuid() and stat.S_ISFIFO(status.st_mode):
        return Pipe(path)
    if status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode):
        return PlainFile(path)
    raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)


class Spool(Protocol):
    """The reading end of one spool. Every method may raise OSError."""

    identity: tuple[int, int]
    """Device and inode of the file."""
    ended: bool
    """True if no process will print into the spool any more."""

    def close(self) -> int:
        """Close the spool; return how many bytes are lost by that."""

    def unread_bytes(self) -> int:
        """Return the least number of bytes that can be read now."""

    def printed_ns(self) -> int:
        """Return the Unix time in ns of the last write into the spool. `remove_bytes` may change it."""

    def peek_bytes(self, most_bytes: int) -> bytes:
        """Return the next bytes. They stay in the spool until `remove_bytes` removes them."""

    def remove_bytes(self, count: int) -> None:
        """Remove the next `count` bytes from the spool."""


class Pipe:
    """A pipe. Its contents are read into memory at once, so that printing processes do not wait for the disk."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._file)
        self.identity = status.st_dev, status.st_ino
        self.ended = False
        self._held = bytearray()

    def close(self) -> int:
        os.close(self._file)
        return len(self._held)

    def unread_bytes(self) -> int:
        moved = 0
        while moved < _MOVED_BYTES and not self.ended:
            try:
                data = os.read(self._file, _MOVED_BYTES)
            except BlockingIOError:
                break
            self._held += data
            moved += len(data)
            self.ended = not data
        return len(self._held)

    def printed_ns(self) -> int:
        return os.fstat(self._file).st_mtime_ns

    def peek_bytes(self, most_bytes: int) -> bytes:
        if len(self._held) < most_bytes:
            self.unread_bytes()
        return bytes(self._held[:most_bytes])

    def remove_bytes(self, count: int) -> None:
        del self._held[:count]


class PlainFile:
    """A plain file that the drain empties from its beginning.

    The drain never truncates the file, because a process may be writing to it. Instead, the drain punches holes where
    it has removed bytes. A hole needs no disk space and reads as zeros, so a later drain knows where to continue.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        status = os.fstat(self._file)
        self.identity = status.st_dev, status.st_ino
        self.ended = False
        self._at = 0
        """Offset in the file up to which all bytes have been removed."""
        self._freed = 0

    def close(self) -> int:
        os.close(self._file)
        return 0

    def unread_bytes(self) -> int:
        size = os.fstat(self._file).st_size
        if size < self._at:  # A process opened /dev/stdout for writing, which empties a file.
            self._at = self._freed = 0
        return size - self._at

    def printed_ns(self) -> int:
        return os.fstat(self._file).st_mtime_ns

    def peek_bytes(self, most_bytes: int) -> bytes:
        unread = self.unread_bytes()
        if not unread:
            return b""
        before = 1 if self._at and self._freed == self._at else 0
        data = os.pread(self._file, min(most_bytes, unread) + before, self._at - before)
        if before and data[:1] != b"\0":  # The file was emptied and printed into again.
            self._at = self._freed = 0
            return os.pread(self._file, most_bytes, 0)
        data = data[before:]
        if data[:1] == b"\0" and self._skip_hole():
            return self.peek_bytes(most_bytes)
        return data

    def _skip_hole(self) -> bool:
        """Skip a hole in the file; return whether there was a hole. Earlier drains leave holes, as do ranks."""
        size = os.fstat(self._file).st_size
        page = -(-self._at // _PAGE) * _PAGE
        try:
            begin = os.lseek(self._file, page, os.SEEK_DATA) if page < size else page
        except OSError:  # The file has no data at all.
            begin = size
        if begin == page and self._at:
            return False  # These zeros were printed.
        page_bytes = os.pread(self._file, _PAGE, begin)
        at = begin + len(page_bytes) - len(page_bytes.lstrip(b"\0"))
        passed, self._at = at > self._at, at
        return passed

    def remove_bytes(self, count: int) -> None:
        self._at += count
        begin = self._freed // _PAGE * _PAGE
        if _libc.fallocate(self._file, _PUNCH_HOLE | _KEEP_SIZE, begin, self._at - begin) == 0:
            self._freed = self._at
        # Else this file system cannot punch holes: the file grows until the run has ended.
