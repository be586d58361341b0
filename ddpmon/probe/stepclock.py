"""Finds steps in the training thread's time: fetches that something is trained on, pauses, step boundaries.

Its time is that of the notes that are read, not the reader's. Times are CLOCK_MONOTONIC nanoseconds.

A step is made of parts: each ends with a gradient synchronisation, and most steps have one. What of an iteration makes
up its step is for `iteration` to say.

On a GPU the host runs ahead, and its clock tells nothing about the work. There every phase change also leaves a mark on
the device's timeline, and `device_timeline` makes the step from the marks once the device has passed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ddpmon.messages import EVALUATION
from ddpmon.probe.maybe_evaluation import MaybeEvaluation
from ddpmon.probe.pauseclock import PauseClock
from ddpmon.probe.records import (
    DATA,
    OTHER,
    PAUSED,
    Device,
    Fetched,
    RawPause,
    RawStep,
)


class StepClock(PauseClock):
    """Tells training from what a script does besides, cuts time at synchronisations, and finishes steps."""

    def __init__(self, time: Callable[[], int]) -> None:
        """time: where it reads nanoseconds of CLOCK_MONOTONIC."""
        super().__init__(time)
        self.finished: deque[RawStep] = deque()
        self.held: list[RawStep] = []
        """Parts of the step that is not finished yet."""
        self.learning_rate: float | None = None
        self.marked_samples: int | None = None
        """Samples of the current step, where the script says so itself."""
        self.skips_first = False
        """True if the first step that is finished is not to count, as its begin was not noticed."""
        self.begin_part(self._time())

    def begin_part(self, start: int) -> None:
        """A new part begins at `start`; whatever was gathered since the last one ended is forgotten."""
        super().begin_part(start)
        self.unused_data: dict[int, list[Fetched]] = {}
        """Per iterator, the one fetched from last at the end: fetches that nothing was trained on yet."""
        self.exhausted: dict[int, int] = {}
        """Iterators that have no more, and how long it took to learn that."""

    def restart(self) -> None:
        """The part that runs begins now, on the device's timeline too."""
        self.begin_part(self._time())
        self._mark(OTHER, self.part.start)

    def start_anew(self, steps: int) -> None:
        """Count steps from here on: none of those before, but for so many that rank 0 has counted."""
        self.held.clear()
        self.finished.clear()
        self.step = steps
        self.restart()

    def follow(self, device: Device) -> None:
        """Place steps on the device's timeline from here on; the current one begins now."""
        self.device = device
        self.restart()

    # --- data --------------------------------------------------------------------------------------------------

    def fetched(self, iterator: int, began: int, samples: int = 0, tokens: int = 0) -> None:
        """The fetch that began then is done. samples, tokens: of its batch."""
        mark = self.part.marks[-1] if self.part.marks else None
        ended = self.leave()
        unused = self.unused_data.pop(iterator, None) or []
        if self.aside is not None:
            self.aside.fetches[iterator] = self.aside.fetches.get(iterator, 0) + 1
        unused.append(Fetched(began, ended - began, mark, samples, tokens, self.paused))
        self.unused_data[iterator] = unused

    def fetch_failed(self, iterator: int, began: int) -> None:
        """An iterator has no more batches."""
        self.exhausted[iterator] = self.leave() - began
        if self.aside is not None:
            self.aside.exhausted = True

    def trained(self) -> None:
        """Something is trained on what was fetched: the last iterator's batches, however many it fetched ahead.

        Another iterator's single batch belongs to it too (a GAN has two loaders); several were an evaluation that
        no DDP model was asked for.
        """
        evaluated = self._resume_training(self.aside) if self.aside is not None else None
        if self.unused_data:
            used = self.unused_data.popitem()[1]
            self._training(used)
            for iterator, unused in self.unused_data.items():
                if evaluated is not None:
                    self._not_training([batch for batch in unused if not evaluated.contains(batch.began)])
                elif iterator in self.exhausted:
                    self._evaluated_between(unused, used[0].began, self.exhausted[iterator])
                elif len(unused) > 1:
                    self._not_training(unused)
                else:
                    self._training(unused)
            self.unused_data.clear()

    def _evaluated_between(self, batches: list[Fetched], end: int, last: int) -> None:
        """A loader was gone through to its end, and nothing was trained on it: an evaluation, up to the next fetch.

        last: how long it took to learn that there are no more batches.
        """
        begin = batches[0].began
        if begin >= end:
            self._not_training(batches)
            return
        inside = [sync for sync in self.syncs if begin <= sync.arrival < end]
        blocked = sum(sync.end - sync.arrival for sync in inside)
        pieces = _without(begin, end, self.part.pauses)
        length = sum(piece_end - piece_begin for piece_begin, piece_end in pieces)
        data = min(self.phases[DATA], last + sum(batch.duration for batch in batches), length - blocked)
        rest = min(self.phases[OTHER], length - data - blocked)
        self.phases[DATA] -= data
        self.phases[OTHER] -= rest
        self.phases[PAUSED] += data + rest + blocked
        self.syncs[:] = [sync for sync in self.syncs if sync not in inside]
        for mark in self.part.marks:
            if begin <= mark.host < end:
                mark.code = PAUSED
        for piece_begin, piece_end in pieces:
            self.part.pauses.append(RawPause(EVALUATION, piece_begin, piece_end))

    def forward_without_gradients(self) -> None:
        """A forward that trains nothing begins: an evaluation, or part of the step that comes."""
        self.evaluates(explained=False)
        if self.aside is not None:
            for unused in self.unused_data.values():
                self.aside.used += unused
            self.unused_data.clear()

    def _resume_training(self, aside: MaybeEvaluation) -> MaybeEvaluation | None:
        """Something is trained again; returns what was kept apart if it was an evaluation.

        An evaluation ended where the batch was fetched that is trained on now, or just now.
        """
        now = self.leave()
        begin = aside.intervals[0][0] if aside.intervals else self._aside_since
        iterator, fetches = next(reversed(self.unused_data.items()), (None, []))
        fetches = [batch for batch in fetches if batch.began >= begin]
        evaluation = aside.is_evaluation(iterator, repeated=self._repeated)
        self._decide(now, evaluation, fetches)
        return aside if evaluation else None

    # --- the end of a step -------------------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """A part of the step ends here, and the next begins."""
        self.phases[self.phase] += end - self._last
        if self._open:
            self._cut_named(end)
        pausing, aside = self.pausing, self.aside
        if aside is not None:
            self._decide(end, aside.is_evaluation(None, repeated=self._repeated))
        elif self.paused:
            self._end_pause(end)
        part = self.part
        part.end, part.step, part.learning_rate = end, self.step + 1, self.learning_rate
        self.held.append(part)
        self.begin_part(end)
        self.pausing = pausing
        if aside is not None:
            self._set_aside(MaybeEvaluation(aside.explained), end)
        else:
            self.paused = pausing is not None

    def finish(self, parts: int, updates: tuple[tuple[str, int], ...] = ()) -> None:
        """The first so many parts that are held were a step.

        updates: of a step that updates several models, whose each update was, and after how many parts.
        """
        *before, last = self.held[:parts]
        del self.held[:parts]
        if self.skips_first:
            self.skips_first = False
            return
        self.step += 1
        last.step, last.before, last.updates = self.step, tuple(before), updates
        last.marked_samples, self.marked_samples = self.marked_samples, None
        self.finished.append(last)


def _without(begin: int, end: int, pauses: Iterable[RawPause]) -> list[tuple[int, int]]:
    """Return what is left of a time between two moments without pauses, which follow each other, as such times."""
    pieces = []
    for pause in pauses:
        if begin < pause.start < end:
            pieces.append((begin, pause.start))
        begin = max(begin, min(end, pause.end))
    return [*pieces, (begin, end)] if begin < end else pieces
