"""Consecutive steps as arrays with a column for each rank, and quantities derived from each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class World:
    """Steps of the same ranks. Shapes have S steps and R ranks; column j belongs to `ranks[j]`."""

    ranks: tuple[int, ...]
    step: Ints
    """[S] Step numbers, rising; a missing number is a lost step."""
    end_us: Ints
    """[S] End of the step on the last rank."""
    length_ms: Floats
    """[S, R] Length of the step on each rank."""
    phases_ms: Floats
    """[S, R, 5] Time in each phase, in the order of OWN_PHASES."""
    own_ms: Floats
    """[S, R] Sum of phases_ms."""
    wait_ms: Floats
    """[S, R] Wait in synchronisations of all kinds."""
    transfer_ms: Floats
    """[S, R] Transfer time: the rest of the step, so that own + wait + transfer = length."""
    exposed_ms: Floats
    """[S, R] Wait + transfer of the gradient synchronisation alone."""
    exposed_wait_ms: Floats
    """[S, R] Wait in the gradient synchronisation alone."""
    late_ms: Floats
    """[S, R] Lateness at the last gradient synchronisation, including earlier waits of the step (see `split_waits`);
    NaN if the step had none."""
    critical: Ints
    """[S] Column of the critical rank, the one that waited least; -1 if no rank waited for another."""
    gradient_bytes: Ints
    """[S, R] Bytes of the gradient synchronisation."""
    samples: Ints
    """[S, R] Number of samples; 0 if unknown."""
    loss: Floats
    """[S, R] Loss. NaN may be a real value: see has_loss."""
    has_loss: Bools
    """[S, R] True where the rank has a loss."""
    tokens: Ints
    """[S, R] Number of tokens; 0 if unknown."""
    gc_ms: Floats
    """[S, R] Time in Python's garbage collector, which is included in the phase in which the collector ran."""
    learning_rate: Floats
    """[S, R] Learning rate; NaN if unknown."""

    # Properties below are computed on first use. A Window stores means in `means`, computed from its running sums.

    @cached_property
    def step_ms(self) -> Floats:
        """Return the wall time [S] of each step: its mean length over ranks.

        A rank that ends a step late begins the next step late. Only means over ranks add up to the duration of all
        steps.
        """
        mean: Floats = self.length_ms.mean(axis=1)
        return mean

    @cached_property
    def slowest_ms(self) -> Floats:
        """Return the largest own time [S] of each step."""
        largest: Floats = self.own_ms.max(axis=1)
        return largest

    @cached_property
    def has_finite_losses(self) -> bool:
        """Return whether every rank has a finite loss in every step."""
        return bool(self.has_loss.all() and np.isfinite(self.loss).all())

    @cached_property
    def critical_share(self) -> Floats:
        """Return the share [R] of the steps with a wait in which others waited for each rank; NaN if none waited."""
        waited_for = self.critical[self.critical >= 0]
        if not len(waited_for):
            return np.full(len(self.ranks), np.nan)
        share: Floats = np.bincount(waited_for, minlength=len(self.ranks)) / len(waited_for)
        return share

    def waited_for(self, columns: int | Sequence[int]) -> float:
        """Return the share of the steps with a wait in which the others waited for these ranks; 0 if none waited."""
        share = float(self.critical_share[columns].sum())
        return 0.0 if np.isnan(share) else share

    @cached_property
    def means(self) -> dict[str, Floats]:
        """Return the cache of means that were already computed, by name."""
        return {}

    def mean(self, name: str) -> Floats:
        """Return the mean of one of the arrays over the steps, [R] or [R, 5]."""
        if name not in self.means:
            self.means[name] = getattr(self, name).mean(axis=0)
        return self.means[name]

    def __len__(self) -> int:
        return len(self.step)

    def last_steps(self, steps: int) -> World:
        """Return a world of the last `steps` steps. Its arrays are views, not copies."""
        return self.steps_between(max(0, len(self) - steps), len(self))

    def steps_between(self, first: int, end: int) -> World:
        """Return a world of the steps from index `first` to before index `end`. Its arrays are views, not copies."""
        first, end = max(0, min(first, len(self))), max(0, min(end, len(self)))
        if end - first == len(self):
            return self
        return dataclasses.replace(self, **{name: getattr(self, name)[first:end] for name in ARRAYS})

    def copied(self) -> World:
        """Return the same steps in copied arrays."""
        return dataclasses.replace(self, **{name: getattr(self, name).copy() for name in ARRAYS})


ARRAYS = tuple(field.name for field in dataclasses.fields(World) if field.name != "ranks")
MEANED = (
    *("length_ms", "phases_ms", "own_ms", "wait_ms", "transfer_ms", "exposed_ms", "exposed_wait_ms"),
    *("gradient_bytes", "samples", "tokens", "gc_ms"),
)
"""Names of the arrays for which `Window` stores running sums to compute means."""
