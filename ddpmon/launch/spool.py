"""The reading end of a spool: a file that processes print into, emptied from its beginning. Standard library only.

Spools are files in memory where a process of the run could make one (`ddpmon.probe.inject.ddpmon_spool` says how, and
how they are called), else the plain files that torchrun opens for its ranks. Nothing is ever cut off, because a writer
may be at work: what was taken is punched out, which frees its space and leaves zeros. So a spool that a killed drain
left tells by itself where its successor goes on.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator

from ddpmon.runs import proc

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_MFD_CLOEXEC = 1
_PAGE = os.sysconf("SC_PAGESIZE")
_NAME = re.compile(r"/memfd:ddpmon (\S+) (.+) \(deleted\)", re.DOTALL)
_LOG = re.compile(r"launcher\.log|ranks/[^/]+/attempt_\d+/\d+/std(?:out|err)\.log")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def make(run_id: str, log: str) -> int:
    """A new spool in memory, to be printed into by appending. OSError where the kernel has none."""
    name = f"ddpmon {run_id} {log}".encode()
    made = int(_libc.memfd_create(name, _MFD_CLOEXEC)) if hasattr(_libc, "memfd_create") else -1
    if made < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    try:
        return os.open(proc.descriptor_path(made), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    finally:
        os.close(made)


def is_log(path: str) -> bool:
    """Whether this is a log of a run, as a path inside the run's logs."""
    return _LOG.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


def log_of(link: str, run_id: str, folder: str) -> str | None:
    """The log that a descriptor belongs to, by its link in /proc; None: it is no spool of this run.

    folder: where torchrun has its files.
    """
    name = _NAME.fullmatch(link)
    if name is not None:
        log = name[2] if name[1] == run_id else ""
    else:
        log = link[len(folder) + 1 :] if link.startswith(f"{folder}/") else ""
    return log if is_log(log) else None


def held(run_id: str, spools: str, but: int) -> Iterator[tuple[str, str]]:
    """Spools of a run that live processes have open: the descriptor's path in /proc, and the log's inside the logs.

    spools: the folder of torchrun's. but: a process that does not count.
    """
    for pid in proc.pids():
        if pid == but:
            continue
        for descriptor, link in proc.descriptors(pid):
            log = log_of(link, run_id, spools)
            if log is not None:
                yield proc.descriptor_path(descriptor, pid), log


class Spool:
    """One spool. Every method may raise OSError."""

    def __init__(self, path: str) -> None:
        """path: of the file, or of a descriptor of it in /proc: this end has a position of its own."""
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        status = os.fstat(self._file)
        self.identity = status.st_dev, status.st_ino
        self._at = 0
        """Position up to which everything was taken."""
        self._freed = 0

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)

    def unread(self) -> int:
        """Bytes that are to be taken, holes among them included."""
        size = os.fstat(self._file).st_size
        if size < self._at:  # somebody opened /dev/stdout for writing, which empties a file
            self._at = self._freed = 0
        return size - self._at

    def printed_ns(self) -> int:
        """When it was last printed into, Unix time; asked while something is unread, for taking changes it too."""
        return os.fstat(self._file).st_mtime_ns

    def read(self, most_bytes: int) -> bytes:
        """What comes next. It stays until it is said to be taken."""
        unread = self.unread()
        if not unread:
            return b""
        before = 1 if self._at and self._freed == self._at else 0
        data = os.pread(self._file, min(most_bytes, unread) + before, self._at - before)
        if before and data[:1] != b"\0":  # emptied, and printed into again
            self._at = self._freed = 0
            return os.pread(self._file, most_bytes, 0)
        data = data[before:]
        if data[:1] == b"\0" and self._skip_hole():
            return self.read(most_bytes)
        return data

    def _skip_hole(self) -> bool:
        """Pass over what somebody else took: another drain before this one, or a rank that no drain came to relieve."""
        size = os.fstat(self._file).st_size
        page = -(-self._at // _PAGE) * _PAGE
        try:
            begin = os.lseek(self._file, page, os.SEEK_DATA) if page < size else page
        except OSError:  # no data at all
            begin = size
        if begin == page and self._at:
            return False  # zeros that were printed
        page_bytes = os.pread(self._file, _PAGE, begin)
        at = begin + len(page_bytes) - len(page_bytes.lstrip(b"\0"))
        passed, self._at = at > self._at, at
        return passed

    def take(self, count: int) -> None:
        """So many bytes are taken: they are freed."""
        self._at += count
        begin = self._freed // _PAGE * _PAGE
        if _libc.fallocate(self._file, _PUNCH_HOLE | _KEEP_SIZE, begin, self._at - begin) == 0:
            self._freed = self._at
        # else this file system punches no holes: it grows until the run has ended
