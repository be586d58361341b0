"""The last steps of a run, with running sums for their means, so that an update costs only its new steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.steps.world import ARRAYS, MEANED, World

MIN_WINDOW_STEPS = 40
"""Minimum number of steps in a window, however long the steps take. With fewer steps, single unusual steps dominate.
Kinds of findings about the whole world need this number."""
ROOM = 256
"""Minimum room in the buffers beyond the window, in steps. When a buffer is full, the window is copied to its
beginning, so more room means fewer copies."""


class Window:
    """The last `steps` steps of a run. A change of the ranks empties the window."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._capacity = steps + max(ROOM, steps // 4)
        self._buffers: dict[str, NDArray[Any]] = {}
        self._sums: dict[str, Floats] = {}
        """Cumulative sums of each array over steps, by name. Only differences between two rows have a meaning."""
        self.ranks: tuple[int, ...] = ()
        """Ranks of the steps in the window."""
        self._first = self._end = 0

    def append(self, part: World) -> None:
        """Append further steps and drop the oldest."""
        part = part.last_steps(self.steps)
        if part.ranks != self.ranks:
            self._begin(part)
        if self._end + len(part) > self._capacity:
            kept = min(self._end - self._first, self.steps - len(part))
            for buffer in (*self._buffers.values(), *self._sums.values()):
                buffer[:kept] = buffer[self._end - kept : self._end].copy()
            for total in self._sums.values():
                total[:kept] -= total[:1].copy()  # Small sums have small rounding errors.
            self._first, self._end = 0, kept
        begin, self._end = self._end, self._end + len(part)
        for name in ARRAYS:
            self._buffers[name][begin : self._end] = getattr(part, name)
        for name, sums in self._sums.items():
            np.cumsum(self._buffers[name][begin : self._end], axis=0, out=sums[begin : self._end])
            sums[begin : self._end] += sums[begin - 1] if begin else 0.0
        self._first = max(self._first, self._end - self.steps)

    def _begin(self, part: World) -> None:
        self.ranks = part.ranks
        self._first = self._end = 0
        self._buffers = {
            name: np.empty((self._capacity, *array.shape[1:]), array.dtype)
            for name in ARRAYS
            for array in (getattr(part, name),)
        }
        self._sums = {name: np.empty((self._capacity, *getattr(part, name).shape[1:])) for name in MEANED}

    def as_world(self, seconds: float | None = None, at_least: int = MIN_WINDOW_STEPS) -> World | None:
        """Return the steps of the window, or only the recent ones; None if the window is empty.

        The arrays are views that the next append may overwrite.

        Args:
            seconds: Return only the steps that ended in the last `seconds` of the window.
            at_least: Minimum number of steps to return with `seconds`, if the window has so many.

        """
        if self._first == self._end:
            return None
        first = self._first
        if seconds is not None:
            ends = self._buffers["end_us"][first : self._end]
            recent = first + int(np.searchsorted(ends, ends[-1] - int(seconds * 1e6)))
            first = max(first, min(recent, self._end - at_least))
        arrays = {name: buffer[first : self._end] for name, buffer in self._buffers.items()}
        world = World(ranks=self.ranks, **arrays)
        last, steps = self._end - 1, self._end - first
        for name, sums in self._sums.items():
            # Rounding errors of the sums must not make a mean negative.
            world.means[name] = np.maximum(sums[last] - sums[first] + arrays[name][0], 0.0) / steps
        return world
