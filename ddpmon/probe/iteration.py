"""Which gradient synchronisations make up one step: what the script means by an iteration of its loop.

An optimizer's step takes the gradients of every backward since the one before it, synchronised or not (gradient
accumulation, a GAN's two losses, the closures of LBFGS). An iteration is over when an optimizer comes round again: a
GAN's critic and generator are one step. All of it follows from the order in which a script synchronises and updates,
which is the same on all ranks, and so are the numbers of their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpmon.probe.stepclock import StepClock

WITHOUT_OPTIMIZER = 4
"""Synchronisations without any optimizer of torch's, after which each is a step of its own."""
MOST_PARTS = 512
"""More synchronisations than any iteration has."""


class Iteration:
    """Finishes a clock's steps: hears of synchronisations and of optimizers that take their gradients."""

    def __init__(self, clock: StepClock, name_of: Callable[[Any], str]) -> None:
        """name_of: a name for the model that an optimizer updates. Optimizers are given by any hashable key."""
        self._clock = clock
        self._name_of = name_of
        self._numbers: dict[Hashable, int] = {}
        """Optimizers that live, in the order in which they were made."""
        self._numbered = 0
        self._last: int | None = None
        """The optimizer with which an iteration ends; None before one came round again."""
        self._updates: list[tuple[int, Hashable, int]] = []
        """Of the step that is not finished: each update's optimizer, by number and key, and the parts before it."""
        self._stepped = False
        """Whether any optimizer took synchronised gradients yet."""
        self._without_optimizer = False
        """Whether the script updates its models without any optimizer of torch's: each synchronisation ends a step."""
        self.stepped_in_backward: Hashable = None
        """The optimizer that stepped inside the backward that runs."""

    def optimizer_made(self, optimizer: Hashable) -> None:
        """An optimizer was made."""
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self._numbered
            self._numbered += 1

    def optimizer_gone(self, optimizer: Hashable) -> None:
        """An optimizer exists no more; another one may get its key."""
        self._numbers.pop(optimizer, None)

    def synchronised(self, *, marked: bool) -> None:
        """A part of the step was cut. marked: the script says itself where its steps end."""
        optimizer, self.stepped_in_backward = self.stepped_in_backward, None
        if marked:
            if len(self._clock.held) >= MOST_PARTS:
                self.end()
        elif optimizer is not None:
            self.updated(optimizer)
        elif not self._stepped and (self._without_optimizer or len(self._clock.held) >= WITHOUT_OPTIMIZER):
            self._without_optimizer = True
            while self._clock.held:
                self._finish(1)
        elif len(self._clock.held) >= MOST_PARTS:
            self._finish(len(self._clock.held))

    def updated(self, optimizer: Hashable) -> None:
        """An optimizer takes the gradients that were synchronised since the last one did; nothing, if none were."""
        held = len(self._clock.held)
        if held == (self._updates[-1][2] if self._updates else 0):
            return
        self._stepped = True
        number = self._numbers.get(optimizer)
        if number is None:
            self.optimizer_made(optimizer)
            number = self._numbers[optimizer]
        if self._updates and any(number == earlier for earlier, _, _ in self._updates):  # it comes round again
            self._last, _, parts = self._updates[-1]
            self._finish(parts)
            held -= parts
        self._updates.append((number, optimizer, held))
        if number == self._last or len(self._numbers) == 1:
            self._last = number
            self._finish(held)

    def end(self) -> None:
        """The script says that its step ends here, or ends itself."""
        self._updates.clear()
        self._finish(len(self._clock.held))

    def _finish(self, parts: int) -> None:
        updates: tuple[tuple[str, int], ...] = ()
        if len(self._updates) > 1:
            updates = tuple((self._name_of(optimizer), count) for _, optimizer, count in self._updates)
        self._updates.clear()
        self._clock.finish(parts, updates)
