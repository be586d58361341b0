"""Accounts for the time in which the training thread does not train: evaluations, checkpoints and other pauses.

Times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ddpmon.messages import EVALUATION
from ddpmon.probe.phaseclock import PhaseClock
from ddpmon.probe.records import BLOCKED, DATA, OTHER, PAUSED, Fetched, RawPause, RawSync


class MaybeEvaluation:
    """Time of the training thread since a forward without gradients, by phase, with its synchronisations.

    This time is measured separately until later calls show whether it was an evaluation or part of a step. Rollouts, a
    teacher's forward, pseudo-labels and gradient caching are no evaluations: they belong to the step that uses their
    results.
    """

    __slots__ = ("exhausted", "explained", "fetches", "intervals", "phases", "syncs", "used")

    def __init__(self, explained: bool) -> None:
        """Begin at a forward without gradients. explained: True if a trained model was put into evaluation mode."""
        self.explained = explained
        self.exhausted = False
        """True if a loader reached its end in this time."""
        self.phases = [0, 0, 0, 0, 0, 0]
        self.syncs: list[RawSync] = []
        self.intervals: list[tuple[int, int]] = []
        """(begin, end) of this time in nanoseconds. A checkpoint in between divides the time into several pairs."""
        self.fetches: dict[int, int] = {}
        """Number of batches that were fetched in this time, by iterator."""
        self.used: list[Fetched] = []
        """Batches that forwards without gradients consumed."""

    def is_evaluation(self, trained_on: int | None, *, repeated: bool) -> bool:
        """Return whether this time was an evaluation, now that training continues.

        Args:
            trained_on: Iterator of the batch that is trained on now; None if the batch was fetched before this time,
                or not by a DataLoader.
            repeated: True if a trained model was in evaluation mode in the previous step too. A forward that happens in
                every step is part of the training.

        """
        if self.exhausted or (self.explained and not repeated):
            return True
        return trained_on is not None and any(
            count > 1 for iterator, count in self.fetches.items() if iterator != trained_on
        )

    def blocked(self) -> int:
        """Return the nanoseconds blocked in synchronisations."""
        return sum(sync.end - sync.arrival for sync in self.syncs)

    def contains(self, moment: int) -> bool:
        """Return whether a time lies in one of the intervals."""
        return any(begin <= moment < end for begin, end in self.intervals)


class PauseClock(PhaseClock):
    """Separates time that may not be training from the phases of a step."""

    def __init__(self, time: Callable[[], int]) -> None:
        """Begin at the current time. time: returns nanoseconds of CLOCK_MONOTONIC."""
        super().__init__(time)
        self.step = 0
        """Number of finished steps."""
        self.pausing: int | None = None
        """Index into messages.PAUSES of the kind of pause; None if there is none, or its kind is uncertain."""
        self.aside: MaybeEvaluation | None = None
        """Time since a forward without gradients, measured separately until training continues; None outside of it."""
        self._aside_since = 0
        self._explained_at = -2
        """Latest step, counted from 0, in which a trained model was in evaluation mode without gradients."""
        self._repeated = False
        """True if the step before `_explained_at` also had a trained model in evaluation mode without gradients."""
        self._paused_since = 0
        self._syncs_before = 0
        """Number of the step's synchronisations when the pause began."""
        self._outer: list[tuple[int | None, int, MaybeEvaluation | None]] = []
        """Pauses that contain the current pause, the outermost first: kind, phase, and separately measured time."""

    def begin_part(self, start: int) -> None:
        """Begin a new part of a step at `start`."""
        super().begin_part(start)
        self._paused_since = start
        self._syncs_before = 0
        if self.aside is not None:
            self._set_aside(MaybeEvaluation(self.aside.explained), start)
        if self._outer:
            self._outer = [
                (kind, phase, MaybeEvaluation(aside.explained) if aside else None) for kind, phase, aside in self._outer
            ]

    def evaluates(self, *, explained: bool) -> None:
        """Measure time separately until training continues. explained: a trained model is in evaluation mode."""
        if self.aside is None and not self.paused:
            self._set_aside(MaybeEvaluation(explained), self.enter_phase(self.phase))
        if self.aside is not None and explained:
            self.aside.explained = True
            self.pausing = EVALUATION
            if self._explained_at != self.step:
                self._repeated = self._explained_at == self.step - 1
                self._explained_at = self.step

    def _set_aside(self, aside: MaybeEvaluation, now: int) -> None:
        """Count time in `aside` from now on."""
        self.aside = aside
        self._aside_since = now
        self.phases, self.syncs = aside.phases, aside.syncs

    def _end_aside(self, now: int) -> MaybeEvaluation | None:
        """Count time for the step itself from now on; return the separately measured time."""
        aside, self.aside = self.aside, None
        if aside is not None:
            aside.intervals.append((self._aside_since, now))
            self.phases, self.syncs = self.part.phases, self.part.syncs
        return aside

    def _decide(self, now: int, evaluation: bool, fetches: Sequence[Fetched] = ()) -> None:
        """Account for the separately measured time, as an evaluation or as part of the step.

        Args:
            now: End of that time.
            evaluation: True if it was an evaluation.
            fetches: Batches that are trained on now. An evaluation ended when the first of them was requested.

        """
        aside = self._end_aside(now)
        if aside is None:
            return
        self.pausing = None
        if not evaluation:
            self.phases[:] = map(sum, zip(self.phases, aside.phases, strict=True))
            self.syncs += aside.syncs
            self._training(aside.used)
            return
        end = fetches[0].began if fetches else now
        later = [sync for sync in aside.syncs if sync.arrival >= end]
        blocked = sum(sync.end - sync.arrival for sync in later)
        rest = max(0, now - end - blocked)
        data = min(rest, sum(batch.duration for batch in fetches))
        self.phases[DATA] += data
        self.phases[OTHER] += rest - data
        self.phases[PAUSED] += max(0, sum(aside.phases) + aside.blocked() - blocked - rest)
        self.syncs += later
        self._not_training([batch for batch in aside.used if not aside.contains(batch.began)])
        for mark in self.part.marks:
            if mark.host < end and aside.contains(mark.host):
                mark.code = PAUSED
        for begin, until in aside.intervals:
            if begin < min(until, end):
                self.part.pauses.append(RawPause(EVALUATION, begin, min(until, end)))
        self.part.pauses.sort(key=lambda pause: pause.start)

    # --- pauses ------------------------------------------------------------------------------------------------

    def begin_pause(self, kind: int) -> None:
        """Begin a pause, in which the script does something other than training, until `end_pause`. Pauses nest."""
        now = self.enter_phase(self.phase)
        self._outer.append((self.pausing, self.phase, self._end_aside(now)))
        if self.paused:
            self._end_pause(now)
        self._pause(kind)

    def end_pause(self) -> None:
        """End the innermost pause: the script continues what it did before."""
        if not self._outer:
            return
        now = self.enter_phase(PAUSED)
        self._end_pause(now)
        kind, phase, aside = self._outer.pop()
        if aside is not None:
            self._set_aside(aside, now)
            self.pausing = kind
        elif kind is not None:
            self._pause(kind)
        self.enter_phase(phase)

    def closing_pauses(self) -> list[RawPause]:
        """Return the pauses from the last step until now, at the end of the process."""
        now = self._time()
        if self.paused:
            self._end_pause(max(now, self._paused_since))
        elif self.aside is not None:  # No training follows, so this time was an evaluation.
            self._decide(max(now, self._aside_since), evaluation=True)
        return self.part.pauses

    def _pause(self, kind: int) -> None:
        self.pausing = kind
        self.paused = True
        self._paused_since = self.enter_phase(PAUSED)
        self._syncs_before = len(self.syncs)

    def _end_pause(self, end: int) -> None:
        """End the pause at `end`, and drop the synchronisations in it, which belong to no step."""
        since, kind = self._paused_since, self.pausing
        self.pausing = None
        self.paused = False
        if kind is None:
            return
        inside = [sync for sync in self.syncs[self._syncs_before :] if sync.arrival < end]
        self.phases[PAUSED] += sum(sync.end - sync.arrival for sync in inside)
        del self.syncs[self._syncs_before : self._syncs_before + len(inside)]
        for mark in self.part.marks:
            if mark.code == BLOCKED and since <= mark.host < end:
                mark.code = PAUSED
        if end > since:
            self.part.pauses.append(RawPause(kind, since, end))

    def _training(self, unused: Iterable[Fetched]) -> None:
        for batch in unused:
            self.part.samples += batch.samples
            self.part.tokens += batch.tokens

    def _not_training(self, unused: Iterable[Fetched]) -> None:
        for batch in unused:
            if not batch.paused:
                spent = min(batch.duration, self.phases[DATA])  # The fetch may have been before this step's start.
                self.phases[DATA] -= spent
                self.phases[OTHER] += spent
                if batch.mark is not None:
                    batch.mark.code = OTHER
