"""Read the notes of DataLoaders: batches that are fetched, workers that are started, and when the first step begins."""

from __future__ import annotations

from ddpmon.messages import STARTING_WORKERS
from ddpmon.probe.journal import Journal
from ddpmon.probe.records import DATA, OTHER
from ddpmon.probe.stepclock import StepClock


class Fetches:
    """The part of an account that DataLoaders write to."""

    def __init__(self, clock: StepClock, journal: Journal) -> None:
        self.clock = clock
        self.beats = 0
        """Rises with every note of the training thread: a heartbeat."""
        self._journal = journal
        self._begun = False
        """True if something was fetched or a marked step was entered since the last set-up."""
        self._fetch_began = 0
        self._awaits_workers = False
        """True if the batch that is fetched is the first one of new workers."""

    def _step_may_begin(self) -> None:
        """Begin the first step, once after each set-up."""
        if not self._begun:
            self._begun = True
            self._begin_first_step()

    def _begin_first_step(self) -> None:
        if self.clock.step == 0:
            self.clock.restart()

    def workers_begin(self, *_: object) -> None:
        """A DataLoader starts its workers."""
        self.clock.base = OTHER
        self._step_may_begin()
        self.pause_begins(STARTING_WORKERS)

    def fetch_begins(self, *_: object) -> None:
        """A batch is asked for."""
        self.clock.base = OTHER
        self._step_may_begin()
        self._fetch_began = self.clock.enter(DATA)

    def workers_awaited(self, *_: object) -> None:
        """The batch that is asked for is the first one of workers that were just started: they come up meanwhile."""
        self._awaits_workers = True
        self.pause_begins(STARTING_WORKERS)

    def _workers_are_up(self) -> None:
        if self._awaits_workers:
            self._awaits_workers = False
            self.pause_ends()
            self._fetch_began = self._journal.now

    def fetch_ends(self, iterator: int, samples: int, tokens: int) -> None:
        """The batch came. iterator: the id of the loader's. samples, tokens: in the batch."""
        self.beats += 1
        self._workers_are_up()
        self.clock.fetched(iterator, self._fetch_began, samples, tokens)

    def fetch_fails(self, iterator: int, *_: object) -> None:
        """The loader has no more (StopIteration), or it raised."""
        self._workers_are_up()
        self.clock.fetch_failed(iterator, self._fetch_began)

    def pause_begins(self, kind: int, *_: object) -> None:
        """The script does something else than training. kind: index into messages.PAUSES."""
        self.beats += 1
        self.clock.begin_pause(kind)

    def pause_ends(self, *_: object) -> None:
        """The script trains again."""
        self.beats += 1
        self.clock.end_pause()
