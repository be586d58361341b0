"""Decides when to start again a process that ended although it was to live on: after growing pauses. Standard library
only.
"""

from __future__ import annotations

LONGEST_PAUSE_S = 30.0
WELL_AFTER_S = 60.0
"""Life of a process after which it counts as healthy: the pause before the next start is the first one again."""


class Restarts:
    """The pauses between the starts of one process. Times are seconds of one monotonic clock."""

    def __init__(self, first_pause_s: float) -> None:
        self._started_at = 0.0
        self._first_pause_s = self._pause_s = first_pause_s
        self._next_at = 0.0

    def due(self, at: float) -> bool:
        """Return whether the pause is over."""
        return at >= self._next_at

    def started(self, at: float) -> None:
        """It is started, or that is tried."""
        self._started_at = at

    def lived_s(self, at: float) -> float:
        """Return how long ago that was."""
        return at - self._started_at

    def failed(self, at: float) -> float:
        """It ended, or could not be started; returns the pause before the next try."""
        if self.lived_s(at) > WELL_AFTER_S:
            self._pause_s = self._first_pause_s
        pause_s = self._pause_s
        self._next_at = at + pause_s
        self._pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return pause_s
