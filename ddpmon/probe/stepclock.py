"""Divides the training thread's time into steps and pauses, and assigns fetched batches to steps.

The clock uses the times at which notes were written, not those at which they are read. Times are CLOCK_MONOTONIC
nanoseconds.

A step consists of parts. Each part ends with a gradient synchronisation; most steps have one part. `iteration` decides
which parts make up a step.

With a GPU, the host runs ahead of the GPU, so the host's clock does not show when the work is done. Then every change
of phase also leaves a mark on the GPU's timeline, and `device_timeline` computes the step from the marks once the GPU
has passed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ddpmon.messages import EVALUATION
from ddpmon.probe.pauseclock import MaybeEvaluation, PauseClock
from ddpmon.probe.records import DATA, OTHER, PAUSED, Device, Fetched, RawPause, RawStep


class StepClock(PauseClock):
    """Separates training from pauses, cuts time into parts at synchronisations, and finishes steps."""

    def __init__(self, time: Callable[[], int]) -> None:
        """Begin at the current time. time: returns nanoseconds of CLOCK_MONOTONIC."""
        super().__init__(time)
        self.finished: deque[RawStep] = deque()
        self.held: list[RawStep] = []
        """Parts of the unfinished step."""
        self.learning_rate: float | None = None
        self.marked_samples: int | None = None
        """Samples of the current step, if the script itself reports them."""
        self.skips_first = False
        """True if the next finished step is dropped, because its beginning was not recorded."""
        self.begin_part(self._time())

    def begin_part(self, start: int) -> None:
        """Begin a new part at `start`, and forget batches that were fetched before it."""
        super().begin_part(start)
        self.unused_data: dict[int, list[Fetched]] = {}
        """Fetched batches that were not trained on yet, by iterator. The iterator that was used last is at the end."""
        self.exhausted: dict[int, int] = {}
        """For each iterator without further batches: the duration of its last, failed fetch in nanoseconds."""

    def restart(self) -> None:
        """Restart the current part now, also on the device's timeline."""
        self.begin_part(self._time())
        self._mark(OTHER, self.part.start)

    def start_anew(self, steps: int) -> None:
        """Forget all steps and count from here. steps: number of steps that rank 0 has counted up to here."""
        self.held.clear()
        self.finished.clear()
        self.step = steps
        self.restart()

    def follow(self, device: Device) -> None:
        """Place steps on the device's timeline from now on; the current step begins now."""
        self.device = device
        self.restart()

    # --- data --------------------------------------------------------------------------------------------------

    def fetched(self, iterator: int, began: int, samples: int = 0, tokens: int = 0) -> None:
        """Handle the end of a fetch.

        Args:
            iterator: Id of the loader's iterator.
            began: Time at which the fetch began.
            samples: Number of samples in the batch.
            tokens: Number of tokens in the batch.

        """
        mark = self.part.marks[-1] if self.part.marks else None
        ended = self.leave_phase()
        unused = self.unused_data.pop(iterator, None) or []
        if self.aside is not None:
            self.aside.fetches[iterator] = self.aside.fetches.get(iterator, 0) + 1
        unused.append(Fetched(began, ended - began, mark, samples, tokens, self.paused))
        self.unused_data[iterator] = unused

    def fetch_failed(self, iterator: int, began: int) -> None:
        """Handle an iterator that has no more batches."""
        self.exhausted[iterator] = self.leave_phase() - began
        if self.aside is not None:
            self.aside.exhausted = True

    def trained(self) -> None:
        """Count all batches from the iterator that was used last as trained on, because training begins.

        A single batch from another iterator counts too (a GAN has two loaders). Several batches from another iterator
        were an evaluation that called no DDP model.
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
        """Count as an evaluation the time in which the script read a loader to its end without training.

        Args:
            batches: Batches of that loader.
            end: Time of the next fetch, at which the evaluation ended.
            last: Duration of the loader's last, failed fetch in nanoseconds.

        """
        begin = batches[0].began
        if begin >= end:
            self._not_training(batches)
            return
        inside = [sync for sync in self.syncs if begin <= sync.arrival < end]
        blocked = sum(sync.end - sync.arrival for sync in inside)
        pieces = _without(begin, end, self.part.pauses)
        length = sum(piece_end - piece_begin for piece_begin, piece_end in pieces)
        own = length - blocked
        data = min(self.phases[DATA], last + sum(batch.duration for batch in batches), own)
        rest = min(self.phases[OTHER], own - data)
        # A fetch that waits for new workers began before its duration is measured.
        data = min(self.phases[DATA], own - rest)
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
        """Handle a forward without gradients, which is an evaluation or part of the next step."""
        self.evaluates(explained=False)
        if self.aside is not None:
            for unused in self.unused_data.values():
                self.aside.used += unused
            self.unused_data.clear()

    def _resume_training(self, aside: MaybeEvaluation) -> MaybeEvaluation | None:
        """Account for separately measured time when training continues; return it if it was an evaluation.

        An evaluation ended when the script requested the batch that it trains on now; without such a request, it ends
        now.
        """
        now = self.leave_phase()
        begin = aside.intervals[0][0] if aside.intervals else self._aside_since
        iterator, fetches = next(reversed(self.unused_data.items()), (None, []))
        fetches = [batch for batch in fetches if batch.began >= begin]
        evaluation = aside.is_evaluation(iterator, repeated=self._repeated)
        self._decide(now, evaluation, fetches)
        return aside if evaluation else None

    # --- the end of a step -------------------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """End a part of the step, and begin the next."""
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
        """Finish a step.

        Args:
            parts: Number of held parts that make up the step, from the first on.
            updates: For a step that updates several models, the model of each update and the number of parts before it.

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
    """Return the spans between two times that are outside of all pauses. The pauses must be in order."""
    pieces = []
    for pause in pauses:
        if begin < pause.start < end:
            pieces.append((begin, pause.start))
        begin = max(begin, min(end, pause.end))
    return [*pieces, (begin, end)] if begin < end else pieces
