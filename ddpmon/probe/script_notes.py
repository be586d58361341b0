"""Reads notes of DataLoaders, trainers' progress and the script's own calls: values, marked steps, named spans."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from ddpmon.messages import MAX_PHASE_NAMES, STARTING_WORKERS
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.identity import Identity
from ddpmon.probe.iteration import Iteration
from ddpmon.probe.journal import Journal
from ddpmon.probe.loop_progress import Loops, Progress
from ddpmon.probe.records import DATA, OTHER
from ddpmon.probe.stepclock import StepClock

MAX_WAITING_VALUES = 10_000
"""Largest number of values of `ddpmon.log`, and of digests, that wait for the background thread."""


class ScriptNotes:
    """The part of an account for DataLoaders, trainers, `ddpmon.log`, `ddpmon.step` and `ddpmon.phase`."""

    def __init__(self, identity: Identity, journal: Journal) -> None:
        self.clock = StepClock(journal.current_note_ns)
        self.beats = 0
        """Heartbeat: number of notes of the training thread."""
        self._names: dict[int, str] = {}
        """Name of the model that each optimizer updates, by the optimizer's id."""
        self.iteration = Iteration(self.clock, lambda key: self._names.get(key, "model"))
        self.loops = Loops(identity.add_note)
        self.scalars: deque[tuple[int, str, object]] = deque(maxlen=MAX_WAITING_VALUES)
        self.total_steps: int | None = None
        self.start: CommonStart | None = None
        """Agreement of all ranks on the first counted step, if they trained before the attach; else None."""
        self.begins_at: int | None = None
        """Number of collectives after which steps are counted; None until the ranks have agreed on it."""
        self._identity = identity
        self._marked = False
        """True if the script marks its steps itself."""
        self._marked_step = 0
        """Number of the marked step that is running; 0 if none."""
        self._journal = journal
        self._begun = False
        """True if a batch was fetched or a marked step was entered since the last setup."""
        self._fetch_began = 0
        self._awaits_workers = False
        """True if the batch being fetched is the first from new workers."""

    def _step_may_begin(self) -> None:
        """Begin the first step if nothing has begun it since the last setup."""
        if not self._begun:
            self._begun = True
            self._begin_first_step()

    def _begin_first_step(self) -> None:
        if self.clock.step == 0:
            self.clock.restart()

    def workers_begin(self, *_: object) -> None:
        """Begin the pause in which a DataLoader starts its workers."""
        self.clock.base = OTHER
        self._step_may_begin()
        self.pause_begins(STARTING_WORKERS)

    def fetch_begins(self, *_: object) -> None:
        """Enter the data phase, because a batch was requested."""
        self.clock.base = OTHER
        self._step_may_begin()
        self._fetch_began = self.clock.enter_phase(DATA)

    def workers_awaited(self, *_: object) -> None:
        """Count the wait for the first batch of new workers as a pause, because the workers are still starting."""
        self._awaits_workers = True
        self.pause_begins(STARTING_WORKERS)

    def _workers_are_up(self) -> None:
        if self._awaits_workers:
            self._awaits_workers = False
            self.pause_ends()
            self._fetch_began = self._journal.now

    def fetch_ends(self, iterator: int, samples: int, tokens: int) -> None:
        """Handle the arrival of a batch.

        Args:
            iterator: Id of the loader's iterator.
            samples: Number of samples in the batch.
            tokens: Number of tokens in the batch.

        """
        self.beats += 1
        self._workers_are_up()
        self.clock.fetched(iterator, self._fetch_began, samples, tokens)

    def fetch_fails(self, iterator: int, *_: object) -> None:
        """Handle a loader that has no more batches (StopIteration) or raised."""
        self._workers_are_up()
        self.clock.fetch_failed(iterator, self._fetch_began)

    def pause_begins(self, kind: int, *_: object) -> None:
        """Begin a pause in training. kind: index into messages.PAUSES."""
        self.beats += 1
        self.clock.begin_pause(kind)

    def pause_ends(self, *_: object) -> None:
        """End the innermost pause in training."""
        self.beats += 1
        self.clock.end_pause()

    @abstractmethod
    def _step_done(self) -> None:
        """Handle the possible end of a step."""

    @property
    def steps_count(self) -> bool:
        """Return whether steps are counted now; in an attached job, not before the ranks have agreed on the first."""
        return self.start is None or self.start.begun_at is not None

    def store_values(self, values: list[tuple[str, object]], *_: object) -> None:
        """Store values of the current step: numbers, or readings on their way from the device."""
        self.beats += 1
        step = self._marked_step or self.clock.step + 1
        if self.steps_count:
            self.scalars.extend((step, name, value) for name, value in values)

    def step_entered(self, samples: int | None, total: int | None, _none: None) -> None:
        """Begin a step that the script marks with `ddpmon.step`.

        Args:
            samples: Samples in the step, if the script reports them.
            total: Steps of the whole training, if the script reports them.

        """
        self._marked, self._marked_step = True, self.clock.step + 1
        self.clock.marked_samples = samples
        self._step_may_begin()
        # After an attach, steps count from the attach, and the script's total from its own start.
        if total is not None and self.start is None:
            self.total_steps = total

    def step_left(self, *_: object) -> None:
        """End a marked step at its last gradient synchronisation, or here if it had none."""
        self._marked_step = 0
        if not self.clock.held:
            self.clock.cut(self.clock.leave_phase())
        self.iteration.end_step()
        self._step_done()

    def close(self) -> None:
        """Finish the steps synchronised before training ended, even if no optimizer consumed their gradients."""
        if self._marked:
            self.iteration.end_step()
        else:
            self.iteration.close()

    def phase_entered(self, name: str, *_: object) -> None:
        """Enter a span that the script has named with `ddpmon.phase`."""
        self.clock.enter_named(name)

    def phase_left(self, name: str, *_: object) -> None:
        """Leave a span that the script has named; add a note if the step has too many names."""
        if not self.clock.exit_named(name):
            self._identity.add_note(
                f"a step has more than {MAX_PHASE_NAMES} names of ddpmon.phase, and ddpmon ignores the rest"
            )

    def trainer_counted(self, progress_at: Callable[[int], Progress], *_: object) -> None:
        """Store a trainer's progress. progress_at: returns the progress; gets the number of steps finished so far."""
        self.loops.trainer = partial(progress_at, self.clock.step)
