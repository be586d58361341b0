"""Read the notes of DataLoaders, and of what a script says itself: values, steps that it marks, names, progress."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from ddpmon.messages import MAX_NAMES, STARTING_WORKERS
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.identity import Identity
from ddpmon.probe.iteration import Iteration
from ddpmon.probe.journal import Journal
from ddpmon.probe.loops import Loops, Progress
from ddpmon.probe.records import DATA, OTHER
from ddpmon.probe.stepclock import StepClock

WAITING = 10_000
"""Values of `ddpmon.log`, and digests, that wait for the sending thread; who never sends keeps no more."""


class ScriptNotes:
    """The part of an account that DataLoaders, trainers, `ddpmon.log`, `ddpmon.step` and `ddpmon.phase` write to."""

    def __init__(self, identity: Identity, journal: Journal) -> None:
        self.clock = StepClock(journal.moment)
        self.beats = 0
        """Rises with every note of the training thread: a heartbeat."""
        self._names: dict[int, str] = {}
        """The name of what each optimizer updates, by the id of the optimizer."""
        self.iteration = Iteration(self.clock, lambda key: self._names.get(key, "model"))
        self.loops = Loops(identity.add_note)
        self.scalars: deque[tuple[int, str, object]] = deque(maxlen=WAITING)
        self.total_steps: int | None = None
        self.start: CommonStart | None = None
        """Agreement of all ranks on where steps begin to count, if they trained before they were watched."""
        self.begins_at: int | None = None
        """Count of collectives after which they do."""
        self._identity = identity
        self._marked = False
        """True if the script marks its steps itself."""
        self._marked_step = 0
        """The marked step that runs now; 0: none."""
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

    @abstractmethod
    def _step_done(self) -> None:
        """A step may have been finished."""

    @property
    def steps_count(self) -> bool:
        """Return whether steps count by now."""
        return self.start is None or self.start.begun_at is not None

    def logged(self, values: list[tuple[str, object]], *_: object) -> None:
        """Values of the current step: numbers, or readings on their way from the device."""
        self.beats += 1
        step = self._marked_step or self.clock.step + 1
        if self.steps_count:
            self.scalars.extend((step, name, value) for name, value in values)

    def step_entered(self, samples: int | None, total: int | None, _none: None) -> None:
        """A step that the script marks itself begins."""
        self._marked, self._marked_step = True, self.clock.step + 1
        self.clock.marked_samples = samples
        self._step_may_begin()
        if total is not None:
            self.total_steps = total

    def step_left(self, *_: object) -> None:
        """A marked step ends with its last gradient synchronisation; without any, here."""
        self._marked_step = 0
        if not self.clock.held:
            self.clock.cut(self.clock.leave())
        self.iteration.end()
        self._step_done()

    def close(self) -> None:
        """The training thread trains no more: what it has synchronised are steps, though no optimizer took it."""
        if self._marked:
            self.iteration.end()
        else:
            self.iteration.close()

    def phase_entered(self, name: str, *_: object) -> None:
        """Enter a named part of the script: time also belongs to it from now on."""
        self.clock.enter_named(name)

    def phase_left(self, name: str, *_: object) -> None:
        """Time no longer belongs to that name."""
        if not self.clock.exit_named(name):
            self._identity.add_note(
                f"a step has more than {MAX_NAMES} names of ddpmon.phase, and ddpmon ignores the rest"
            )

    def trainer_counted(self, progress_at: Callable[[int], Progress], *_: object) -> None:
        """A trainer said how far it is: what that means after so many steps of ours."""
        self.loops.trainer = partial(progress_at, self.clock.step)
