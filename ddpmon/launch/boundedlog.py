"""A log of bounded length on a disk that may be full. Standard library only.

`ddpmon.runs.rotated_logs` names the files of a log. A line in the log reports the number of bytes that are missing: at
the place of the gap if the disk was full, at the end of the `.first` file if the log grew too long.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import time
from collections.abc import Mapping
from pathlib import Path

from ddpmon.errors import UsageError
from ddpmon.runs import rotated_logs

RUN_BYTES = 256 << 20
"""Largest total size in bytes of the logs of a run's ranks if DDPMON_LOGS is not set."""
LEAST_BYTES = 1 << 20
"""Smallest limit of one log in bytes, however many logs there are."""
FIRST_BYTES = 64 << 10
DISK_RETRY_S = 1.0
"""Seconds between two attempts to write to a full disk."""
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_MISSING = re.compile(rb"\n?\[ddpmon\] ([\d,]+) bytes after this are missing[^\n]*\n\Z")
_DROPPED = re.compile(rb"\[ddpmon\] ([\d,]+) bytes of output are missing[^\n]*\n")
_FULL = {
    errno.ENOSPC: "the disk was full",
    errno.EDQUOT: "the disk's quota was used up",
    errno.EFBIG: "the limit of file sizes was reached (ulimit -f)",
}


def bound_bytes(environment: Mapping[str, str]) -> int:
    """Return how many bytes a run's logs may take, from DDPMON_LOGS. Raise UsageError if its value is not a size."""
    text = environment.get("DDPMON_LOGS", "")
    if not text:
        return RUN_BYTES
    size = _SIZE.fullmatch(text.strip())
    if size is None:
        raise UsageError(f"DDPMON_LOGS={text}: give a size, such as 256M or 2G")
    return int(size[1]) << _UNITS[size[2].upper()]


def _half_of(most_bytes: int) -> int:
    """Return the largest size of each of the log's two files in bytes, within the limit of `ulimit -f`."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return most_bytes // 2 if limit == resource.RLIM_INFINITY else min(most_bytes // 2, limit)


class BoundedLog:
    """One log of bounded size. No method raises. `full` is True if the disk refused the last write."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.full = False
        self._path = path
        self._half = _half_of(most_bytes)
        self._file = -1
        self._size = 0
        self._in_line = False
        """True if the last line that was written has no newline yet."""
        self._not_kept = 0
        self._why = ""
        self._again_at = 0.0
        self._reported = self._reported_before = 0
        """Number of missing bytes that the lines in the current file report, minus the size of these lines. The second
        number is that of the older file."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has been written to the log yet."""
        return not self.full and self.ensure_open() and not self._size and not rotated_logs.older(self._path).exists()

    @property
    def half_bytes(self) -> int:
        """Return the most bytes that each of the log's two files may hold."""
        return self._half

    def limit_size(self, most_bytes: int) -> None:
        """Limit the log to `most_bytes` from now on."""
        self._half = _half_of(most_bytes)
        with contextlib.suppress(OSError):
            if rotated_logs.older(self._path).stat().st_size + self._size > most_bytes:
                self._discard_older()

    def write(self, data: bytes) -> int:
        """Append data; return how many bytes were written, which is fewer than all only if the disk is full."""
        written = 0
        while written < len(data) and self.ensure_open() and self._say_what_is_missing():
            piece = data[written : written + max(0, self._half - self._size)]
            if len(piece) < len(data) - written:
                piece = piece[: piece.rfind(b"\n") + 1]  # The next file begins with a whole line.
                if not piece and self._size:
                    self._rotate_files()
                    continue
                piece = piece or data[written : written + self._half]
            written += self._append_piece(piece)
        return written

    def printed_at(self, unix_ns: int) -> None:
        """Set the file's modification time to that of its last line, so that the newest log has the last output."""
        if self._file >= 0 and not self._path.name.startswith("stdout"):
            with contextlib.suppress(OSError):
                os.utime(self._file, ns=(unix_ns, unix_ns))

    def try_again(self) -> None:
        """Let the next write try a full disk again, without waiting for `DISK_RETRY_S`."""
        self._again_at = 0.0

    def count_missing(self, count: int, why: str = "") -> None:
        """Count bytes that will be missing in the log.

        Args:
            count: The number of bytes.
            why: The reason; if empty, it is the disk's last error.

        """
        self._not_kept += count
        self._why = why or self._why

    def close_with_note(self) -> None:
        """Write the line on missing bytes, if the disk allows, and close the log."""
        self.try_again()
        if self._not_kept and self.ensure_open():
            self._say_what_is_missing()
        self._close_file()

    def ensure_open(self) -> bool:
        """Create or open the file if it is not open; return whether it can be written."""
        if self.full and time.monotonic() < self._again_at:
            return False
        if self._file >= 0:
            return True
        try:
            logs = next((each for each in self._path.parents if each.name == "logs"), self._path.parent)
            os.stat(logs)  # The folder of a deleted run must not be created again.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._file).st_size
            self._in_line = self._size > 0 and os.pread(self._file, 1, self._size - 1) != b"\n"
        except OSError as error:
            self._note_refusal(error)
            return False
        return True

    def _close_file(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = -1

    def _append_piece(self, piece: bytes) -> int:
        try:
            written = os.write(self._file, piece)
        except OSError as error:
            self._note_refusal(error)
            return 0
        self.full = False
        self._size += written
        if written:
            self._in_line = piece[written - 1 : written] != b"\n"
        return written

    def _note_refusal(self, error: OSError) -> None:
        self.full = True
        self._why = _FULL.get(error.errno or 0, f"the log could not be written ({error.strerror})")
        self._again_at = time.monotonic() + DISK_RETRY_S

    def _say_what_is_missing(self) -> bool:
        """Write a line where bytes were dropped; return whether the disk accepted it."""
        if not self._not_kept:
            return True
        line = f"[ddpmon] {self._not_kept:,} bytes of output are missing: {self._why}\n".encode()
        before = self._size
        if self._append_piece(b"\n" + line if self._in_line else line) < len(line):
            with contextlib.suppress(OSError):  # Remove a line that was written in part.
                os.ftruncate(self._file, before)
                self._size = before
            self.full = True
            self._again_at = time.monotonic() + DISK_RETRY_S
            return False
        self._reported += self._not_kept - (self._size - before)
        self._not_kept, self._why = 0, ""
        return True

    def _rotate_files(self) -> None:
        self._discard_older()
        self._close_file()
        self._reported_before, self._reported = self._reported, 0
        try:
            os.replace(self._path, rotated_logs.older(self._path))
        except OSError:  # The folder is gone or not writable, so the log starts again in the same file.
            with contextlib.suppress(OSError):
                os.truncate(self._path, 0)
                self.count_missing(self._size, "ddpmon could not rename the full log")
        self.ensure_open()

    def _discard_older(self) -> None:
        """Delete the older file of the log; if it is the first one, store its first lines in the `.first` file."""
        gone, first_lines = rotated_logs.older(self._path), rotated_logs.first(self._path)
        try:
            size = gone.stat().st_size
        except OSError:
            return
        head, missing = b"", 0
        with contextlib.suppress(OSError):
            head = first_lines.read_bytes()
        if head:
            if last_line := _MISSING.search(head):
                head, missing = head[: last_line.start()], int(last_line[1].replace(b",", b""))
            missing += size + self._reported_before
        else:
            with contextlib.suppress(OSError), gone.open("rb") as file:
                head = file.read(FIRST_BYTES)
            head = head[: head.rfind(b"\n") + 1] or head
            dropped_before = sum(int(line[1].replace(b",", b"")) - len(line[0]) for line in _DROPPED.finditer(head))
            missing = size + self._reported_before - len(head) - dropped_before
        with contextlib.suppress(OSError):
            gone.unlink()  # Delete it first: the disk may have no other free space.
        line = f"[ddpmon] {missing:,} bytes after this are missing: the limit for this log is {2 * self._half:,}\n"
        with contextlib.suppress(OSError):
            draft = first_lines.with_name(f"{first_lines.name}.new")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(head + (b"" if head.endswith(b"\n") else b"\n") + line.encode())
            os.replace(draft, first_lines)
