"""Deadlines of tests, which get longer while other programs keep the machine's cores busy."""

from __future__ import annotations

import os
import time


def busy_factor() -> float:
    """Return the programs that want to run per core in the last minute, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Deadline:
    """A moment until which a test waits.

    Args:
        idle_s: seconds that are enough on an idle machine.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._began = time.monotonic()

    @property
    def passed(self) -> bool:
        return time.monotonic() - self._began > self._idle_s * busy_factor()
