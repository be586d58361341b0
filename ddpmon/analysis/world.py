"""What is known of a stretch of steps, all ranks side by side, and the window that keeps the last of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """Steps of the same ranks. S steps, R ranks; column j belongs to `ranks[j]`."""

    ranks: tuple[int, ...]
    step: Ints
    """[S] Step numbers, rising; a missing one was lost."""
    end_us: Ints
    """[S] When the last rank ended it."""
    length_ms: Floats
    """[S, R]"""
    phases_ms: Floats
    """[S, R, 5] In the order of OWN_PHASES."""
    own_ms: Floats
    """[S, R] Sum of phases_ms."""
    wait_ms: Floats
    """[S, R]"""
    transfer_ms: Floats
    """[S, R] own + wait + transfer = length."""
    exposed_ms: Floats
    """[S, R] Wait + transfer of the gradient synchronisation alone."""
    exposed_wait_ms: Floats
    """[S, R] The wait in it."""
    late_ms: Floats
    """[S, R] Lateness in the gradient synchronisation; NaN where the step had none."""
    critical: Ints
    """[S] Column of the critical rank, the one that waited least; -1 where nobody waited for anybody."""
    gradient_bytes: Ints
    """[S, R] Bytes of the gradient synchronisation."""
    samples: Ints
    """[S, R] 0: not known."""
    loss: Floats
    """[S, R] NaN may be a real one: see has_loss."""
    has_loss: Bools
    """[S, R]"""
    tokens: Ints
    """[S, R] 0: not known."""
    gc_ms: Floats
    """[S, R] Garbage collection, inside whatever phase it fell into."""

    def __len__(self) -> int:
        return len(self.step)

    def last(self, steps: int) -> World:
        """The same world, its last steps alone. Views, no copies."""
        return self.between(max(0, len(self) - steps), len(self))

    def between(self, first: int, end: int) -> World:
        """The same world, steps `first` to before `end` by index. Views, no copies."""
        return dataclasses.replace(self, **{name: getattr(self, name)[first:end] for name in ARRAYS})


ARRAYS = tuple(field.name for field in dataclasses.fields(World) if field.name != "ranks")


class Window:
    """Keeps the last `steps` steps. A change of the ranks starts it anew."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._capacity = steps + max(256, steps // 4)
        self._buffers: dict[str, NDArray[Any]] = {}
        self._ranks: tuple[int, ...] = ()
        self._first = self._end = 0

    def append(self, part: World) -> None:
        """Take further steps; the oldest go."""
        if part.ranks != self._ranks:
            self._ranks = part.ranks
            self._first = self._end = 0
            self._buffers = {
                name: np.empty((self._capacity, *array.shape[1:]), array.dtype)
                for name in ARRAYS
                for array in (getattr(part, name),)
            }
        part = part.last(self.steps)
        if self._end + len(part) > self._capacity:
            kept = min(self._end - self._first, self.steps - len(part))
            for buffer in self._buffers.values():
                buffer[:kept] = buffer[self._end - kept : self._end].copy()
            self._first, self._end = 0, kept
        for name, buffer in self._buffers.items():
            buffer[self._end : self._end + len(part)] = getattr(part, name)
        self._end += len(part)
        self._first = max(self._first, self._end - self.steps)

    def world(self, seconds: float | None = None, at_least: int = 20) -> World | None:
        """The steps it holds, or those that ended in its last `seconds` and `at_least` so many; None if empty.

        The arrays are views that the next append may overwrite.
        """
        if self._first == self._end:
            return None
        first = self._first
        if seconds is not None:
            ends = self._buffers["end_us"][first : self._end]
            recent = first + int(np.searchsorted(ends, ends[-1] - int(seconds * 1e6)))
            first = max(first, min(recent, self._end - at_least))
        return World(ranks=self._ranks, **{name: buffer[first : self._end] for name, buffer in self._buffers.items()})
