"""A stretch of steps as arrays, all ranks side by side, and quantities derived from them step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class World:
    """Steps of the same ranks. S steps, R ranks; column j belongs to `ranks[j]`."""

    ranks: tuple[int, ...]
    step: Ints
    """[S] Step numbers, rising; a missing one was lost."""
    end_us: Ints
    """[S] End on the last rank."""
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
    """[S, R] Lateness in the last gradient synchronisation, including earlier waits of the step (see `split`); NaN
    where the step had none."""
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
    learning_rate: Floats
    """[S, R] NaN: not known."""

    # Computed when first asked for; means come from the sums that a Window keeps.

    @cached_property
    def step_ms(self) -> Floats:
        """[S] The step's length, on the rank where it was longest."""
        longest: Floats = self.length_ms.max(axis=1)
        return longest

    @cached_property
    def slowest_ms(self) -> Floats:
        """[S] The largest own time."""
        largest: Floats = self.own_ms.max(axis=1)
        return largest

    @cached_property
    def has_finite_losses(self) -> bool:
        """Return whether every rank has a finite loss in every step."""
        return bool(self.has_loss.all() and np.isfinite(self.loss).all())

    @cached_property
    def critical_share(self) -> Floats:
        """[R] Share of the steps in which somebody waited that waited for each rank; NaN: nobody ever waited."""
        waited_for = self.critical[self.critical >= 0]
        if not len(waited_for):
            return np.full(len(self.ranks), np.nan)
        share: Floats = np.bincount(waited_for, minlength=len(self.ranks)) / len(waited_for)
        return share

    def waited_for(self, columns: int | Sequence[int]) -> float:
        """Return the share of the steps in which somebody waited that waited for one of these; 0: nobody did."""
        share = float(self.critical_share[columns].sum())
        return 0.0 if np.isnan(share) else share

    @cached_property
    def means(self) -> dict[str, Floats]:
        """Means that are known, by name."""
        return {}

    def mean(self, name: str) -> Floats:
        """Return the mean of one of the arrays over the steps, [R] or [R, 5]."""
        if name not in self.means:
            self.means[name] = getattr(self, name).mean(axis=0)
        return self.means[name]

    def __len__(self) -> int:
        return len(self.step)

    def last(self, steps: int) -> World:
        """Return the last steps alone. Views, no copies."""
        return self.between(max(0, len(self) - steps), len(self))

    def between(self, first: int, end: int) -> World:
        """Return the steps `first` to before `end` by index. Views, no copies."""
        first, end = max(0, min(first, len(self))), max(0, min(end, len(self)))
        if end - first == len(self):
            return self
        return dataclasses.replace(self, **{name: getattr(self, name)[first:end] for name in ARRAYS})

    def copied(self) -> World:
        """Return the same steps in arrays of their own."""
        return dataclasses.replace(self, **{name: getattr(self, name).copy() for name in ARRAYS})


ARRAYS = tuple(field.name for field in dataclasses.fields(World) if field.name != "ranks")
MEANED = (
    *("length_ms", "phases_ms", "own_ms", "wait_ms", "transfer_ms", "exposed_ms", "exposed_wait_ms"),
    *("gradient_bytes", "samples", "tokens", "gc_ms"),
)
"""Arrays whose means a Window keeps."""
