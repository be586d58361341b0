"""Decides which gradient synchronisations make up one step.

With one optimizer, each of its updates ends a step, however many backward calls it takes (gradient accumulation,
several losses, gradient caching, the closures of LBFGS). With several optimizers, a step contains the updates of all of
them, such as those of a GAN's generator and critic. It ends when all of them have updated and the first one is about to
update again. Consecutive updates of the same optimizer count as one, because a critic may update five times per step.

A cycle is one round of updates of all optimizers. Parts are held back until the cycle is certain, so that no step that
was sent needs a correction. The cycle follows from the order of a script's synchronisations and updates. This order is
the same on all ranks, so the numbers of their steps are the same too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ddpmon.probe.stepclock import StepClock

MAX_CYCLE_UPDATES = 64
"""Largest number of updates in a cycle of several optimizers. If there are more, the script trains its models one after
another. Then each update is a step.
"""
MAX_PARTS = 512
"""Number of synchronisations without an update after which each synchronisation ends a step."""
IN_BACKWARD = "in backward"
"""Key of the optimizers that step during backward, in a hook. All such optimizers count as one optimizer."""


class Update(NamedTuple):
    """An update, in which an optimizer consumed the synchronised gradients."""

    optimizer: Hashable
    parts: int
    """Number of parts of the unfinished step that had been synchronised before this update."""
    opens: bool = True
    """True if this optimizer may begin the next cycle; False if the update belongs to the cycle before."""


class Iteration:
    """Finishes a clock's steps, given the synchronisations and the optimizers that consume gradients."""

    def __init__(self, clock: StepClock, name_of: Callable[[Any], str]) -> None:
        """Start without optimizers. name_of: returns the name of the model that the optimizer with a key updates."""
        self._clock = clock
        self._name_of = name_of
        self._candidates: set[Hashable] = set()
        """Keys of the living optimizers that may be part of the cycle."""
        self._stepped: set[Hashable] = set()
        """Keys of the living optimizers that have stepped."""
        self._members: set[Hashable] = set()
        """Keys of the optimizers that stepped in the last step."""
        self._updates: list[Update] = []
        """Updates of the unfinished step."""
        self._last: Hashable = None
        """Key of the optimizer whose update ends a cycle; None until that is certain."""
        self._alone = False
        """True if each update of `_last` is a cycle."""
        self._repeats = False
        """True if `_last` may step several times in a row. Then the first update of the next cycle ends the step."""
        self._joined_at: dict[Hashable, int] = {}
        """For each optimizer other than `_last`: its latest step number at an update while only `_last` made cycles."""
        self._taken_by: Hashable = None
        """Key of the optimizer that consumed the latest gradients."""
        self._expected = True
        """True if an update is expected; otherwise each synchronisation ends a step."""
        self._usual_parts = 1
        """Number of parts of the last step."""
        self._in_backward: set[Hashable] = set()
        """Keys of the living optimizers that step in hooks of a backward."""
        self._stepped_in_backward = False
        """True if an optimizer stepped in a hook of the current backward."""

    def start_anew(self) -> None:
        """Reset everything except the set of living optimizers."""
        candidates = self._candidates
        Iteration.__init__(self, self._clock, self._name_of)
        self._candidates = candidates

    def optimizer_made(self, optimizer: Hashable) -> None:
        """Register a new optimizer."""
        self._candidates.add(optimizer)
        self._expected = True

    def optimizer_in_backward(self, optimizer: Hashable) -> None:
        """Handle an optimizer that steps inside the current backward."""
        if optimizer not in self._in_backward:
            self.optimizer_gone(optimizer)
            self._in_backward.add(optimizer)
        self._stepped_in_backward = True

    @property
    def stepped_in_backward(self) -> bool:
        """Return whether an optimizer stepped inside the current backward."""
        return self._stepped_in_backward

    def optimizer_gone(self, optimizer: Hashable) -> None:
        """Forget an optimizer that was freed or replaced; another one may get its key."""
        if optimizer in self._in_backward:
            self._in_backward.discard(optimizer)
            if not self._in_backward:
                self.optimizer_gone(IN_BACKWARD)
        self._candidates.discard(optimizer)
        self._stepped.discard(optimizer)
        self._joined_at.pop(optimizer, None)
        if any(update.optimizer == optimizer for update in self._updates):  # The cycle can no longer be completed.
            if self._last is None or len({update.optimizer for update in self._updates}) == 1:
                self._finish_each([update.parts for update in self._updates])
            else:
                self._finish(self._updates[-1].parts)
        if optimizer == self._last:
            self._last, self._alone, self._repeats = None, False, False

    def synchronised(self, *, marked: bool) -> None:
        """Handle the end of a part of a step. marked: True if the script itself marks where its steps end."""
        stepped, self._stepped_in_backward, self._taken_by = self._stepped_in_backward, False, None
        held = len(self._clock.held)
        if marked:
            if held >= MAX_PARTS:
                self.end_step()
        elif stepped:
            self.note_update(IN_BACKWARD)
        elif held >= MAX_PARTS and (self._updates or self._last is not None):
            self._finish(held)
        elif held >= MAX_PARTS or not (self._candidates and self._expected):
            self._expected = False  # No optimizer was made or has stepped yet.
            self._finish_each(range(1, held + 1))

    def end_joined_part(self) -> None:
        """Handle the end of a part in which this rank had no data left and took part only because of Join.

        The rank makes no update in such a part. Its step ends after as many parts as its last step had.
        """
        if len(self._clock.held) >= self._usual_parts:
            self._finish(len(self._clock.held))

    def note_update(self, optimizer: Hashable) -> None:
        """Handle an optimizer's step. It is an update if gradients were synchronised since the last update."""
        held = len(self._clock.held)
        before = self._updates[-1] if self._updates else None
        self._expected = True
        if held == (before.parts if before else 0):
            if self._taken_by not in {None, optimizer}:
                self._candidates.discard(optimizer)  # It consumes the same gradients as another one.
                self._finish_alone()
            return
        self._taken_by = optimizer
        self._candidates.add(optimizer)
        self._stepped.add(optimizer)
        if before is not None and before.optimizer == optimizer and optimizer not in self._members:
            # This optimizer repeats, and was not part of the last step, so another training has begun.
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
        """Finish each update as a step if there is only one optimizer, or only one has stepped for a long time."""
        if self._updates and (len(self._candidates) == 1 or len(self._updates) > MAX_CYCLE_UPDATES):
            self._last, self._alone, self._repeats = self._updates[-1].optimizer, True, False
            self._finish_each([update.parts for update in self._updates])

    def _opened(self, optimizer: Hashable) -> bool:
        """Return whether an optimizer has stepped in this cycle."""
        return any(update.opens and update.optimizer == optimizer for update in self._updates)

    def _finish_cycle(self, last: Update) -> None:
        """Finish a cycle that ended with this update, because the next cycle has begun."""
        run = [update.optimizer for update in self._updates[-2:]]
        self._repeats = (self._repeats and self._last == last.optimizer) or run.count(last.optimizer) > 1
        self._last, self._alone = last.optimizer, False
        self._finish(last.parts)

    def _belongs_before(self, optimizer: Hashable) -> bool:
        """Return whether the first update of a step still belongs to the previous cycle.

        The update belongs to it if the cycle's last optimizer steps once more. If each update of `_last` counted as a
        cycle, it also does if another optimizer steps for the second time within MAX_CYCLE_UPDATES steps.
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

    def end_step(self) -> None:
        """End the step where the script itself marks the end of a step."""
        if self._clock.held:
            self._finish(len(self._clock.held))

    def close(self) -> None:
        """Finish the parts that are held back when training has ended. Without a known cycle, each update is a step."""
        held = len(self._clock.held)
        if self._last is not None:
            self.end_step()
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
        """Finish one step at each number of parts in `ends`."""
        finished = 0
        members = {update.optimizer for update in self._updates}
        for end in sorted(ends):
            self._updates.clear()
            self._finish(end - finished)
            finished = end
        self._members = members
