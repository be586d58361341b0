"""Decides how often to do expensive work in a large world: so seldom that it takes a bounded share of a core."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator


class CpuBudget:
    """Measures what something takes, in CPU time of this thread, and spaces it."""

    def __init__(self, share: float, most_s: float = math.inf) -> None:
        """share: of one core, at most. most_s: between two times, at most, even if that takes more."""
        self._share, self._most_s = share, most_s
        self._due = float("-inf")

    def due(self, now: float) -> bool:
        """Return whether enough time has passed since the last time."""
        return now >= self._due

    @property
    def at(self) -> float:
        """Return when it is due again."""
        return self._due

    @contextlib.contextmanager
    def spent(self, now: float) -> Iterator[None]:
        """Do it inside this."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._due = now + min(self._most_s, (time.thread_time() - began) / self._share)
