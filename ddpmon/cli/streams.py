"""Handles standard streams that cannot be written to: the disk is full, the reader is gone, or they were closed."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import shutil
import sys
from typing import Any, TextIO

from ddpmon.errors import DdpmonError

MIN_COLUMNS, PROSE_COLUMNS, MAX_PROSE_COLUMNS = 20, 80, 100
"""Widths in columns: of the narrowest terminal that text is fitted to, of sentences in a pipe, and of the longest line
of a sentence.
"""
_remote_columns = 0
"""Columns of the terminal at the other end of an ssh connection; 0 if standard output goes to no such terminal."""
_PIPED_COLUMNS = 10_000
"""Width in columns for output to a pipe or a file, where no line has to be cut or wrapped."""
_FOR_GOOD = {errno.EPIPE, errno.EBADF}
"""Errors after which no later write can succeed, unlike a full disk."""


_decoder = codecs.getincrementaldecoder("utf-8")("replace")


class OutputError(DdpmonError):
    """Reports that standard output cannot be written to."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}")
        self.reader_left = error.errno == errno.EPIPE


class StandardStream:
    """Wraps standard output or standard error. A failing write raises OutputError, or drops the text if `survives`."""

    def __init__(self, stream: TextIO | None, *, survives: bool = False) -> None:
        """Wrap a stream.

        Args:
            stream: The stream; None if its descriptor was closed when Python started.
            survives: Discard text that cannot be written, and raise nothing.

        """
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115  open to the end
        self._broken = OSError(errno.EBADF, os.strerror(errno.EBADF)) if stream is None else None
        self._survives = survives
        self._complaint = ""

    def survive(self, complaint: str) -> None:
        """Raise nothing from now on. The first error prints one line on standard error that ends with `complaint`."""
        self._survives, self._complaint = True, complaint

    def write(self, text: str) -> int:
        """Write text; return its length."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush all buffers to the kernel."""
        self._try(self._stream.flush)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes and flush."""
        self._try(self._stream.buffer.write, data)
        self._try(self._stream.buffer.flush)

    def settle(self) -> None:
        """Flush for the last time; discard text that cannot be written, as Python would fail to flush it at exit."""
        try:
            self.flush()
        finally:
            self.survive("")
            try:
                self._stream.flush()
            except OSError:  # The disk is full, and the text is still in the buffer.
                self._discard()

    def _try(self, call: Any, *args: object) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            call(*args)
        except OSError as error:
            if error.errno in _FOR_GOOD:
                self._broken = error
                self._discard()
            if not self._survives:
                raise OutputError(error) from None
            complaint, self._complaint = self._complaint, ""
            if complaint:
                print(f"ddpmon: standard output: {error.strerror}; {complaint}", file=sys.stderr)

    def _discard(self) -> None:
        """Point the descriptor at /dev/null, so that flushing what is still buffered succeeds."""
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def output_columns(without_terminal: int = _PIPED_COLUMNS) -> int:
    """Return the width of the terminal that standard output is; `without_terminal` if it is a pipe or a file."""
    if _remote_columns or sys.stdout.isatty():
        return max(MIN_COLUMNS, _remote_columns or shutil.get_terminal_size().columns)
    return without_terminal


def print_for_terminal(columns: int) -> None:
    """Fit text to a terminal of this width at the other end of an ssh connection."""
    global _remote_columns
    _remote_columns = columns


def prose_columns() -> int:
    """Return the width in which to print sentences."""
    return min(MAX_PROSE_COLUMNS, output_columns(PROSE_COLUMNS))


def occupy_closed() -> None:
    """Open /dev/null in place of closed standard descriptors; otherwise the next opened file would become one."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The kernel assigns the lowest free number, which is this descriptor's.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  open to the end


def survive_lost_output(complaint: str) -> None:
    """Let the command continue if its standard output fails. One line on standard error then ends with `complaint`."""
    if isinstance(sys.stdout, StandardStream):
        sys.stdout.survive(complaint)


def write_foreign(data: bytes) -> None:
    """Write another machine's output to standard output, as plain text if it is a terminal. Raise OutputError."""
    if sys.stdout.isatty():
        sys.stdout.write(_decoder.decode(data).replace("\r", ""))
        sys.stdout.flush()
    else:
        write_bytes(data)


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output and flush. Raise OutputError."""
    if isinstance(sys.stdout, StandardStream):
        sys.stdout.write_bytes(data)
