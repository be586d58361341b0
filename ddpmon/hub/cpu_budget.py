"""Limits how often expensive work is repeated, so that it takes a bounded share of a core even with many ranks."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator


class CpuBudget:
    """Measures the CPU time of repeated work in this thread, and delays the next repetition accordingly."""

    def __init__(self, share: float, most_s: float = math.inf) -> None:
        """Set the limits.

        Args:
            share: Largest share of one core that the work may take.
            most_s: Longest time in seconds between two repetitions, even if the work then exceeds its share.

        """
        self._share, self._most_s = share, most_s
        self._due = float("-inf")

    def is_due(self, now: float) -> bool:
        """Return whether the work may be done again."""
        return now >= self._due

    @property
    def due_at(self) -> float:
        """Return the monotonic time in seconds at which the work is due again."""
        return self._due

    @contextlib.contextmanager
    def measured(self, now: float) -> Iterator[None]:
        """Measure the work in the body of this context manager, and schedule the next repetition."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._due = now + min(self._most_s, (time.thread_time() - began) / self._share)
