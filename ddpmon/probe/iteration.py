"""Decides which gradient synchronisations make up one step.

A step is one cycle of the optimizers: it lasts until the optimizer that opened it comes round again after another one.
With one optimizer every update ends a step, however many backward calls it takes (gradient accumulation, several
losses, gradient caching, the closures of LBFGS). With several, consecutive updates of one of them belong together: a
GAN whose critic steps five times, or whose regularisation adds an update now and then, has one step an iteration.

Parts are held back until the cycle is certain, so that no step that was sent needs a correction. Everything follows
from the order in which a script synchronises and updates, which is the same on all ranks, and so are the numbers of
their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ddpmon.probe.stepclock import StepClock

MAX_CYCLE_UPDATES = 64
"""Updates within which a cycle of several optimizers comes round. What takes longer is no cycle: the script trains one
model for a while and another one later, and each update is a step."""
MAX_PARTS = 512
"""Synchronisations without an update after which none is expected any more."""
IN_BACKWARD = "in backward"
"""The key of all optimizers that step in hooks of a backward: together they make one update."""


class Update(NamedTuple):
    """An optimizer took gradients."""

    optimizer: Hashable
    parts: int
    """Parts of the unfinished step that were synchronised by then."""
    opens: bool = True
    """True if the cycle may come round with this optimizer: not if the update belongs to the cycle before."""


class Iteration:
    """Finishes a clock's steps as it learns of synchronisations and of optimizers that take the gradients."""

    def __init__(self, clock: StepClock, name_of: Callable[[Any], str]) -> None:
        """name_of: a name for the model that an optimizer updates. Optimizers are given by any hashable key."""
        self._clock = clock
        self._name_of = name_of
        self._candidates: set[Hashable] = set()
        """Living optimizers that may be part of the cycle."""
        self._stepped: set[Hashable] = set()
        """Living optimizers that have stepped."""
        self._members: set[Hashable] = set()
        """Optimizers that stepped in the last step."""
        self._updates: list[Update] = []
        """Updates of the unfinished step."""
        self._last: Hashable = None
        """The optimizer with whose update a cycle ends; None before that is certain."""
        self._alone = False
        """True if each update of that one is a cycle."""
        self._repeats = False
        """True if that one may step several times in a row: then the next cycle's first update ends the step."""
        self._joined_at: dict[Hashable, int] = {}
        """Step at which another optimizer last joined an update that is a cycle of its own."""
        self._taken_by: Hashable = None
        """The optimizer that took the latest gradients."""
        self._expected = True
        """True if an update is expected; else each synchronisation ends a step."""
        self._usual_parts = 1
        """Number of parts of the last step."""
        self._in_backward: set[Hashable] = set()
        """Living optimizers that step in hooks of a backward."""
        self._stepped_in_backward = False
        """True if one of them stepped in the backward that runs."""

    def start_anew(self) -> None:
        """Forget everything but which optimizers there are."""
        candidates = self._candidates
        Iteration.__init__(self, self._clock, self._name_of)
        self._candidates = candidates

    def optimizer_made(self, optimizer: Hashable) -> None:
        """An optimizer was made."""
        self._candidates.add(optimizer)
        self._expected = True

    def optimizer_in_backward(self, optimizer: Hashable) -> None:
        """An optimizer steps inside the backward that runs."""
        if optimizer not in self._in_backward:
            self.optimizer_gone(optimizer)
            self._in_backward.add(optimizer)
        self._stepped_in_backward = True

    @property
    def stepped_in_backward(self) -> bool:
        """Return whether an optimizer stepped inside the backward that runs."""
        return self._stepped_in_backward

    def optimizer_gone(self, optimizer: Hashable) -> None:
        """An optimizer exists no more, or another one steps in its place; another one may get its key."""
        if optimizer in self._in_backward:
            self._in_backward.discard(optimizer)
            if not self._in_backward:
                self.optimizer_gone(IN_BACKWARD)
        self._candidates.discard(optimizer)
        self._stepped.discard(optimizer)
        self._joined_at.pop(optimizer, None)
        if any(update.optimizer == optimizer for update in self._updates):  # the cycle cannot come round
            if self._last is None or len({update.optimizer for update in self._updates}) == 1:
                self._finish_each([update.parts for update in self._updates])
            else:
                self._finish(self._updates[-1].parts)
        if optimizer == self._last:
            self._last, self._alone, self._repeats = None, False, False

    def synchronised(self, *, marked: bool) -> None:
        """A part of the step was cut. marked: the script says itself where its steps end."""
        stepped, self._stepped_in_backward, self._taken_by = self._stepped_in_backward, False, None
        held = len(self._clock.held)
        if marked:
            if held >= MAX_PARTS:
                self.end()
        elif stepped:
            self.updated(IN_BACKWARD)
        elif held >= MAX_PARTS and (self._updates or self._last is not None):
            self._finish(held)
        elif held >= MAX_PARTS or not (self._candidates and self._expected):
            self._expected = False  # before an optimizer is made, or steps
            self._finish_each(range(1, held + 1))

    def shadowed(self) -> None:
        """A part was cut in which this rank, out of data, only joined the synchronisation of the others.

        It updates nothing then. Its steps have as many parts as its last one had.
        """
        if len(self._clock.held) >= self._usual_parts:
            self._finish(len(self._clock.held))

    def updated(self, optimizer: Hashable) -> None:
        """An optimizer takes the gradients that were synchronised since the last one did; nothing, if none were."""
        held = len(self._clock.held)
        before = self._updates[-1] if self._updates else None
        self._expected = True
        if held == (before.parts if before else 0):
            if self._taken_by not in {None, optimizer}:
                self._candidates.discard(optimizer)  # it takes the same gradients as another one
                self._finish_alone()
            return
        self._taken_by = optimizer
        self._candidates.add(optimizer)
        self._stepped.add(optimizer)
        if before is not None and before.optimizer == optimizer and optimizer not in self._members:
            # It repeats, and those of the steps before have not come: another training has begun.
            self._candidates -= self._stepped - {update.optimizer for update in self._updates}
        if before is not None and before.optimizer != optimizer and self._opened(optimizer):
            self._finish_cycle(before)
            held -= before.parts
        elif before is None and self._belongs_before(optimizer):
            self._updates.append(Update(optimizer, held, opens=False))
            return
        self._updates.append(Update(optimizer, held))
        if optimizer == self._last and not self._repeats:
            self._finish(held)
        else:
            self._finish_alone()

    def _finish_alone(self) -> None:
        """Finish each update as a step where no other optimizer comes, or none has come for long."""
        if self._updates and (len(self._candidates) == 1 or len(self._updates) > MAX_CYCLE_UPDATES):
            self._last, self._alone, self._repeats = self._updates[-1].optimizer, True, False
            self._finish_each([update.parts for update in self._updates])

    def _opened(self, optimizer: Hashable) -> bool:
        """Return whether an optimizer has stepped in this cycle."""
        return any(update.opens and update.optimizer == optimizer for update in self._updates)

    def _finish_cycle(self, last: Update) -> None:
        """A cycle has come round: it ended with that update."""
        run = [update.optimizer for update in self._updates[-2:]]
        self._repeats = (self._repeats and self._last == last.optimizer) or run.count(last.optimizer) > 1
        self._last, self._alone = last.optimizer, False
        self._finish(last.parts)

    def _belongs_before(self, optimizer: Hashable) -> bool:
        """Return whether the first update of a step shows that the cycle before was not over.

        The last optimizer steps once more, or one joins again, within a cycle's length, what seemed to step alone.
        """
        if not self._alone:
            self._repeats = self._repeats or optimizer == self._last
            return optimizer == self._last
        if optimizer == self._last:
            return False
        step = self._clock.step
        joined_at = self._joined_at.get(optimizer)
        self._joined_at[optimizer] = step
        if joined_at is None or step - joined_at > MAX_CYCLE_UPDATES:
            return False
        self._last, self._alone = optimizer, False
        return True

    def end(self) -> None:
        """The script says that its step ends here."""
        if self._clock.held:
            self._finish(len(self._clock.held))

    def close(self) -> None:
        """The script trains no more: what is held back is told, each update as a step where no cycle was seen."""
        held = len(self._clock.held)
        if self._last is not None:
            self.end()
        elif self._updates:
            self._finish_each({*(update.parts for update in self._updates), held})
        else:
            self._finish_each(range(1, held + 1))

    def _finish(self, parts: int) -> None:
        updates: tuple[tuple[str, int], ...] = ()
        if len({update.optimizer for update in self._updates}) > 1:
            updates = tuple((self._name_of(update.optimizer), update.parts) for update in self._updates)
        self._members = {update.optimizer for update in self._updates}
        self._updates.clear()
        self._usual_parts = parts
        self._clock.finish(parts, updates)

    def _finish_each(self, ends: Iterable[int]) -> None:
        """Each of these counts of parts ends a step."""
        finished = 0
        members = {update.optimizer for update in self._updates}
        for end in sorted(ends):
            self._updates.clear()
            self._finish(end - finished)
            finished = end
        self._members = members
