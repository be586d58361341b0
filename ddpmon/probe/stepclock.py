"""What of the training thread's time is a step: fetches that something is trained on, pauses, step boundaries.

Its time is that of the notes that are read, not the reader's. Times are CLOCK_MONOTONIC nanoseconds.

A step is made of parts: each ends with a gradient synchronisation, and most steps have one. What of an iteration makes
up its step is for `iteration` to say.

On a GPU the host runs ahead, and its clock tells nothing about the work. There every phase change also leaves a mark on
the device's timeline, and `device_timeline` makes the step from the marks once the device has passed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ddpmon.messages import EVALUATION
from ddpmon.probe.phaseclock import PhaseClock
from ddpmon.probe.records import (
    BLOCKED,
    DATA,
    OTHER,
    PAUSED,
    Device,
    Fetched,
    RawPause,
    RawStep,
)

LONG_NS = 1_000_000_000
"""Forwards without gradients that took so long were an evaluation, even where there was one of them alone."""


class StepClock(PhaseClock):
    """Tells training from what a script does besides, cuts time at synchronisations, and finishes steps."""

    __slots__ = (
        "_explained",
        "_outer",
        "_paused_since",
        "_syncs_before",
        "buckets",
        "exhausted",
        "fed",
        "finished",
        "gc",
        "held",
        "learning_rate",
        "losses",
        "marked_samples",
        "pauses",
        "samples",
        "start",
        "step",
        "tokens",
        "unused_data",
    )

    def __init__(self, time: Callable[[], int]) -> None:
        """time: where it reads nanoseconds of CLOCK_MONOTONIC."""
        super().__init__(time)
        self.finished: deque[RawStep] = deque()
        self.held: list[RawStep] = []
        """Parts of the step that is not finished yet."""
        self.step = 0
        """Steps finished so far."""
        self.learning_rate: float | None = None
        self.marked_samples: int | None = None
        """Samples of the current step, where the script says so itself."""
        self._paused_since = 0
        self._explained = False
        """Whether it is certain that the pause is one: else a single forward without gradients is part of a step."""
        self._syncs_before = 0
        """How many synchronisations the step had when the pause began."""
        self._outer: list[tuple[int | None, int, bool]] = []
        """What pauses were begun in: the pause around each, its phase, and whether that was explained."""
        self.begin(self._time())

    def begin(self, start: int) -> None:
        """A new part begins at `start`; whatever was gathered since the last one ended is forgotten."""
        super().begin(start)
        self.losses: list[object] = []
        self.fed: dict[int, list[int]] = {}
        self.samples = 0
        self.tokens = 0
        self.gc = 0
        self.buckets: list[list[int]] | None = None
        """Where they are recorded: layout, launch and end of each; an end of 0 is still to come."""
        self.pauses: list[RawPause] | None = None
        self.unused_data: dict[int, list[Fetched]] = {}
        """Per iterator, the one fetched from last at the end: fetches that nothing was trained on yet."""
        self.exhausted: dict[int, int] = {}
        """Iterators that have no more, and how long it took to learn that."""
        self.start = start
        self._paused_since = start
        self._syncs_before = 0

    def follow(self, device: Device) -> None:
        """From here on, steps lie on the device's timeline; the current one begins now."""
        self.device = device
        self.begin(self._time())
        self._mark(OTHER, self.start)

    # --- data --------------------------------------------------------------------------------------------------

    def fetched(self, iterator: int, began: int, samples: int = 0, tokens: int = 0) -> None:
        """The fetch that began then is done. samples, tokens: of its batch."""
        mark = self.marks[-1] if self.marks else None
        ended = self.leave()
        unused = self.unused_data.pop(iterator, None) or []
        unused.append(Fetched(began, ended - began, mark, samples, tokens, self.pausing is not None))
        self.unused_data[iterator] = unused

    def trained(self) -> None:
        """Something is trained on what was fetched: the last iterator's batches, however many it fetched ahead.

        Another iterator's single batch belongs to it too (a GAN has two loaders); several were an evaluation that
        no DDP model was asked for.
        """
        resumed = self.pausing == EVALUATION
        if resumed:
            self._resume_training()
        if self.unused_data:
            used = self.unused_data.popitem()[1]
            self._training(used)
            for iterator, unused in self.unused_data.items():
                if iterator in self.exhausted and not resumed:
                    self._evaluated_between(unused, used[0].began, self.exhausted[iterator])
                elif resumed or len(unused) > 1:
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
        pieces = _without(begin, end, self.pauses or ())
        length = sum(piece_end - piece_begin for piece_begin, piece_end in pieces)
        data = min(self.phases[DATA], last + sum(batch.duration for batch in batches), length - blocked)
        rest = min(self.phases[OTHER], length - data - blocked)
        self.phases[DATA] -= data
        self.phases[OTHER] -= rest
        self.phases[PAUSED] += data + rest + blocked
        self.syncs = [sync for sync in self.syncs if sync not in inside]
        for mark in self.marks:
            if begin <= mark.host < end:
                mark.code = PAUSED
        for piece_begin, piece_end in pieces:
            self._add_pause(RawPause(EVALUATION, piece_begin, piece_end))

    def _add_pause(self, pause: RawPause) -> None:
        if self.pauses is None:
            self.pauses = []
        self.pauses.append(pause)

    def evaluated(self) -> None:
        """A forward without gradients: what was fetched for it is no training data."""
        for unused in self.unused_data.values():
            self._not_training(unused)
        self.unused_data.clear()

    def _training(self, unused: list[Fetched]) -> None:
        for batch in unused:
            self.samples += batch.samples
            self.tokens += batch.tokens

    def _not_training(self, unused: list[Fetched]) -> None:
        for batch in unused:
            if not batch.paused:
                spent = min(batch.duration, self.phases[DATA])  # the fetch may lie before this step's start
                self.phases[DATA] -= spent
                self.phases[OTHER] += spent
                if batch.mark is not None:
                    batch.mark.code = OTHER

    # --- pauses ------------------------------------------------------------------------------------------------

    def evaluates(self, *, explained: bool) -> None:
        """From now on, if not already, the script evaluates, until something is trained.

        explained: it is certain. Else two calls of this make it so.
        """
        if self.pausing == EVALUATION:
            self._explained = True
        elif self.pausing is None:
            self._pause(EVALUATION, explained)

    def begin_pause(self, kind: int) -> None:
        """From now on the script does something else than training, until `end_pause`. Pauses nest."""
        self._outer.append((self.pausing, self.phase, self._explained))
        if self.pausing is not None:
            self._end_pause(self.enter(PAUSED))
        self._pause(kind, explained=True)

    def end_pause(self) -> None:
        """What `begin_pause` began is over: the script goes on with what it did before."""
        if not self._outer:
            return
        now = self.enter(PAUSED)
        self._end_pause(now)
        kind, phase, explained = self._outer.pop()
        if kind is not None:
            self._pause(kind, explained)
        else:
            self.enter(phase)

    def closing_pauses(self) -> list[RawPause]:
        """The pauses since the last step, up to now; for the end of the process."""
        now = self._time()
        if self.pausing is not None:
            self._end_pause(max(now, self._paused_since))
        return self.pauses or []

    def _pause(self, kind: int, explained: bool) -> None:
        self.pausing = kind
        self._paused_since = self.enter(PAUSED)
        self._explained = explained
        self._syncs_before = len(self.syncs)

    def _end_pause(self, end: int) -> None:
        """The pause lasted until `end`. What was synchronised in it was no part of a step."""
        since, kind = self._paused_since, self.pausing
        self.pausing = None
        if kind is None:
            return
        if not (self._explained or end - since >= LONG_NS):
            self._no_pause(since, end)
            return
        inside = [sync for sync in self.syncs[self._syncs_before :] if sync.arrival < end]
        self.phases[PAUSED] += sum(sync.end - sync.arrival for sync in inside)
        del self.syncs[self._syncs_before : self._syncs_before + len(inside)]
        for mark in self.marks:
            if mark.code == BLOCKED and since <= mark.host < end:
                mark.code = PAUSED
        if end > since:
            self._add_pause(RawPause(kind, since, end))

    def _no_pause(self, since: int, end: int) -> None:
        """What seemed to be a pause was part of a step."""
        spent = min(self.phases[PAUSED], end - since)
        self.phases[PAUSED] -= spent
        self.phases[OTHER] += spent
        for mark in self.marks:
            if mark.code == PAUSED and mark.host >= since:
                mark.code = OTHER

    def _resume_training(self) -> None:
        """The evaluation ended where the batch was fetched that is trained on now, or just now."""
        now = self.enter(PAUSED)
        fetches = [batch for batch in next(reversed(self.unused_data.values()), []) if batch.paused]
        end = max(self._paused_since, fetches[0].began) if fetches else now
        self._end_pause(end)
        blocked = sum(sync.end - sync.arrival for sync in self.syncs[self._syncs_before :] if sync.arrival >= end)
        since = min(self.phases[PAUSED], now - end - blocked)
        data = min(since, sum(batch.duration for batch in fetches))
        self.phases[PAUSED] -= since
        self.phases[DATA] += data
        self.phases[OTHER] += since - data
        for mark in self.marks:
            if mark.code == PAUSED and mark.host >= end:
                mark.code = OTHER
        for batch in fetches:
            if batch.mark is not None:
                batch.mark.code = DATA
        self.phase = OTHER

    # --- the end of a step -------------------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """A part of the step ends here, and the next begins."""
        self.phases[self.phase] += end - self._last
        if self._open:
            self._cut_named(end)
        pausing = self.pausing
        if pausing is not None:
            self._end_pause(end)
            self.pausing = pausing
        self.held.append(
            RawStep(
                self.start,
                end,
                self.phases,
                self.syncs,
                self.losses,
                self.fed,
                self.samples,
                self.tokens,
                self.learning_rate,
                self.gc,
                self.marks,
                self.buckets,
                self.named,
                self.pauses,
                self.gaps,
                self.step + 1,
            )
        )
        self.begin(end)

    def finish(self, parts: int, updates: tuple[tuple[str, int], ...] = ()) -> None:
        """The first so many parts that are held were a step.

        updates: of a step that updates several models, whose each update was, and after how many parts.
        """
        self.step += 1
        if parts == 1 and self.marked_samples is None and self.held[0].step == self.step:
            self.finished.append(self.held[0])
        else:
            *before, last = self.held[:parts]
            self.finished.append(
                replace(
                    last,
                    step=self.step,
                    before=tuple(before),
                    updates=updates,
                    marked_samples=self.marked_samples,
                )
            )
            self.marked_samples = None
        del self.held[:parts]


def _without(begin: int, end: int, pauses: Iterable[RawPause]) -> list[tuple[int, int]]:
    """Return what is left of a time between two moments without pauses, which follow each other, as such times."""
    pieces = []
    for pause in pauses:
        if begin < pause.start < end:
            pieces.append((begin, pause.start))
        begin = max(begin, min(end, pause.end))
    return [*pieces, (begin, end)] if begin < end else pieces
