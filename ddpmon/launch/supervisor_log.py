"""Writes the supervisor's lines into its log. A full disk delays a line and never stops the program."""

from __future__ import annotations

import os
import time

KEPT_BYTES = 65_536
"""Lines that are kept while they cannot be written; the oldest are dropped first."""


class SupervisorLog:
    """Lines for an open file, which is written to without buffers in between."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._unwritten = b""

    def say(self, text: str) -> None:
        """Write a line with its time, after those that wait."""
        line = f"{time.strftime('%H:%M:%S')} {text}\n".encode(errors="backslashreplace")
        self._unwritten = (self._unwritten + line)[-KEPT_BYTES:]
        self.write()

    def write(self) -> None:
        """Try again to write what waits."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        except OSError:
            return
