"""Turns the training thread's notes into phases, synchronisations, losses, samples and ends of steps.

`listener` writes a note for each call that it intercepts. This module reads the notes in order, on the background
thread once there is one. `stepclock` keeps the time, and `iteration` decides where steps end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ddpmon.messages import SCALED_UPDATES, STAGE_TRAINING, SYNC_GRADIENTS
from ddpmon.probe.digest import SampledElements
from ddpmon.probe.identity import Identity
from ddpmon.probe.journal import Journal
from ddpmon.probe.loss import GradientCache
from ddpmon.probe.parallelism import Parallelism
from ddpmon.probe.records import (
    BACKWARD,
    FED_CALLS,
    FED_MOST_SAMPLES,
    FED_MOST_TOKENS,
    FED_SAMPLES,
    FED_TOKENS,
    FORWARD,
    OPTIMIZER,
    OTHER,
    Reduction,
)
from ddpmon.probe.script_notes import MAX_WAITING_VALUES, ScriptNotes

AGREEING_UPDATES = 3
"""Number of consecutive updates that must have equally many reductions. An epoch's last update may have fewer."""


class Account(ScriptNotes):
    """Reads notes. Each method with three arguments reads one kind of note. `journal.now` is the note's time."""

    def __init__(self, identity: Identity, parallelism: Parallelism, journal: Journal) -> None:
        super().__init__(identity, journal)
        self.sampled: deque[SampledElements] = deque(maxlen=MAX_WAITING_VALUES)
        """Digests of replicas whose values have not arrived from the device yet."""
        self.updates = 0
        """Number of updates up to the note being read, counted as in `messages.step_counter`."""
        self.unsynchronised = 0
        """Number of optimizer steps on gradients that were not synchronised although there is a DDP model."""
        self._parallelism = parallelism
        self._models = False
        """True if there was a DDP model at the last optimizer step."""
        self._forwards = False
        """True if there has been a forward with gradients."""
        self._arrival = 0
        self.reductions = 0
        """Number of gradient reductions per update, once the last `AGREEING_UPDATES` updates agree on it; else 0."""
        self._reductions: list[int] = [0]
        """Number of reductions before each of the last updates; the last entry: reductions since the latest update."""
        self._ddp = False
        """True once this rank has synchronised gradients. Then only a synchronisation ends a part of a step."""
        self._passed = 0, 0, 0
        """Numbers of collectives, parts and updates at the end of the latest part, for ranks on other machines."""
        self._closures = 0
        """Number of backward calls in the closure of the optimizer that is stepping."""
        self._cache = GradientCache()
        self._trained: set[int] = set()
        """Numbers of the models that had a forward with gradients."""
        self._around: list[int] = []
        """For each running backward call, the outermost first: the phase to return to when the call ends."""
        self._undecided = False
        """True if the last forward computed gradients although its model was in evaluation mode."""
        self._trains_in_eval = False
        """True if a model was trained in evaluation mode. Evaluation mode then does not imply an evaluation."""
        self._in_training_mode: set[int] = set()
        """Numbers of the models that had a forward with gradients in training mode."""
        self.held_out = 0
        """Number of consecutive reductions of models in evaluation mode that had trained in training mode before."""
        self.skips: deque[bool] = deque(maxlen=SCALED_UPDATES)
        """The latest updates through a GradScaler: True for each update that the scaler skipped."""
        self._scaler_steps = False
        """True between GradScaler.step and the optimizer's step."""

    # --- set-up ------------------------------------------------------------------------------------------------

    def set_up(self, expecting: bool, *_: object) -> None:
        """Restart the first step once the script has set up its training, so that the step includes no imports.

        expecting: True if the first step has already begun and its forward is done.
        """
        if not (self.clock.step or self.clock.held or expecting):
            self._begun = False
            self._begin_first_step()

    def follow_device(self, *_: object) -> None:
        """Measure steps on the GPU's timeline from now on."""
        self.clock.follow(self._journal)

    def optimizer_made(self, key: int, *_: object) -> None:
        """Register a new optimizer. key: its id."""
        self.iteration.optimizer_made(key)

    def optimizer_named(self, key: int, name: str, others: Sequence[int]) -> None:
        """Handle an optimizer's first step. name: its model. others: optimizers that update parts of that model."""
        self._names[key] = name
        for other in others:
            self.iteration.optimizer_gone(other)

    def optimizer_gone(self, key: int, *_: object) -> None:
        """Forget an optimizer that was freed. key: its id."""
        self.iteration.optimizer_gone(key)
        self._names.pop(key, None)

    # --- forward -----------------------------------------------------------------------------------------------

    def phase_fails(self, *_: object) -> None:
        """Handle a forward that raised, and end its phase."""
        self.clock.leave_phase()

    def forward_begins(self, model: int, samples: int, tokens: int) -> None:
        """Handle a forward in training mode with gradients. model: its number; -1 if its inputs do not count."""
        self.beats += 1
        self._forward_with_gradients()
        self._undecided = False
        self._in_training_mode.add(model)
        self.held_out = 0
        self._trains(model, samples, tokens)

    def forward_held_out(self, model: int, samples: int, tokens: int) -> None:
        """Handle a forward in evaluation mode with gradients: an evaluation without `no_grad`, or training."""
        self.beats += 1
        self._forward_with_gradients()
        self._undecided = not self._trains_in_eval and self.clock.pausing is not None
        if not self._undecided:  # Otherwise the next backward shows whether the forward was training.
            self._trains(model, samples, tokens)

    def _forward_with_gradients(self) -> None:
        self._forwards = True
        self._cache.forward(self.clock.part.losses, inside_backward=bool(self._around))

    def forward_without_gradients(self, model: int, held_out: bool, _none: None) -> None:
        """Handle an evaluation's or a teacher's forward without gradients. held_out: True in evaluation mode."""
        self.beats += 1
        clock = self.clock
        clock.evaluates(explained=held_out and not self._trains_in_eval and max(0, model) in self._trained)
        clock.forward_without_gradients()
        self._cache.forward_without_gradients()
        clock.enter_phase(FORWARD)

    def _trains(self, model: int, samples: int, tokens: int) -> None:
        clock = self.clock
        self._trained.add(max(0, model))
        clock.trained()
        clock.enter_after_gap(FORWARD, 0)
        again = clock.base == OPTIMIZER and self._closures
        if model >= 0 and clock.marked_samples is None and not again:
            fed = clock.part.fed.setdefault(model, [0, 0, 0, 0, 0])
            fed[FED_SAMPLES] += samples
            fed[FED_TOKENS] += tokens
            fed[FED_CALLS] += 1
            if samples > fed[FED_MOST_SAMPLES]:
                fed[FED_MOST_SAMPLES], fed[FED_MOST_TOKENS] = samples, tokens

    def forward_ends(self, *_: object) -> None:
        """Handle a forward that returned."""
        if self.clock.phase == FORWARD:
            self.clock.leave_phase()

    def digest_taken(self, sampled: SampledElements, *_: object) -> None:
        """Assign a digest of a model to the current step."""
        sampled.step = self.clock.step
        if self.steps_count:
            self.sampled.append(sampled)

    # --- synchronisations --------------------------------------------------------------------------------------

    def synchronisation_begins(self, *_: object) -> None:
        """Handle the training thread's arrival at a synchronisation."""
        self._arrival = self.clock.begin_sync()

    def synchronisation_was_none(self, *_: object) -> None:
        """Handle a synchronisation that blocked no rank, because it raised or was asynchronous."""
        self.beats += 1
        self.clock.block_not()

    def synchronised(self, kind: int, payload_bytes: int, _none: None) -> None:
        """Handle the end of a synchronisation."""
        self.beats += 1
        self.clock.end_sync(kind, self._arrival, payload_bytes)

    # --- backward ----------------------------------------------------------------------------------------------

    def backward_begins(self, accumulates: bool, single: bool, loss: object) -> None:
        """Handle the start of a backward from `loss`. accumulates: it fills .grad. single: it starts at one tensor."""
        clock = self.clock
        if accumulates:
            self._trains_in_eval = self._trains_in_eval or self._undecided
            clock.trained()  # Without DDP, the forward has left no note.
        clock.enter_after_gap(BACKWARD, 1)
        if accumulates:
            again = False
            if single and clock.base == OPTIMIZER:  # LBFGS calls its closure many times with the same batch.
                self._closures += 1
                again = self._closures > 1
            self._cache.backward(clock.part.losses, None if again else loss)
        self._around.append(clock.base)
        clock.base = BACKWARD

    def backward_fails(self, *_: object) -> None:
        """Handle a backward that raised, and end its phase."""
        self._leave_backward()

    def _leave_backward(self) -> int:
        self.clock.base = self._around.pop() if self._around else OTHER
        return self.clock.leave_phase()

    def bucket_launched(self, bucket: list[int], *_: object) -> None:
        """Record a bucket's all-reduce as [layout, launch, end]. The end is filled in later."""
        self.clock.part.buckets.append(bucket)

    def backward_ends(self, reductions: Sequence[Reduction], *_: object) -> None:
        """Handle the end of a backward and its reductions, if any. With several models, the latest arrival counts."""
        self.beats += 1
        clock = self.clock
        now = self._leave_backward()
        outermost = not self._around
        if not reductions:
            if self.iteration.stepped_in_backward and outermost and not self._ddp:
                self._cut(now)
            return
        arrival, payload_bytes, event = 0, 0, None
        for its_bytes, ready, expected_at, its_event, held_out in reductions:
            payload_bytes += its_bytes
            its_arrival = expected_at + max(ready) if ready else now  # If the times are unknown, take the end.
            if its_arrival > arrival:
                arrival, event = its_arrival, its_event
            self.held_out += held_out in self._in_training_mode
        clock.blocked_at_the_end(SYNC_GRADIENTS, min(arrival, now), now, payload_bytes, BACKWARD, event)
        self._ddp = True
        self.updates += 1
        self._reductions[-1] += clock.base != OPTIMIZER  # Every call of a closure reduces gradients of its own.
        self._cut(now)

    def _cut(self, now: int) -> None:
        """End a part of a step with this backward."""
        self.clock.cut(now)
        self.iteration.synchronised(marked=self._marked)
        self._step_done()

    def count_joined_step(self, *_: object) -> None:
        """Count a step of the other ranks in which this rank had no data and took part only because of Join."""
        self.pause_ends()
        self.updates += 1
        self.clock.cut(self._journal.now)
        self.iteration.end_joined_part()
        self._step_done()

    def end_part(self, issued: int, count: int, whole: bool) -> None:
        """Handle the end of a part of a step in a process that trained before the attach.

        Args:
            issued: Number of collectives so far.
            count: Number of parts so far.
            whole: True if a step ended too.

        """
        start = self.start
        if start is not None and start.begun_at is not None:
            self._passed = issued, count, self.updates
            self._tell_place()
        elif start is not None and self.begins_at is not None and issued >= self.begins_at:
            self.unsynchronised = self.held_out = self.reductions = 0
            self._reductions = [0]
            for before in (self.skips, self.sampled, self.scalars):
                before.clear()
            self.iteration.start_anew()
            self.clock.start_anew(start.steps)
            self._begun, self.clock.skips_first = True, not whole and not start.steps
            start.begun_at = count - start.parts

    def _tell_place(self) -> None:
        """Publish the place where the latest step ended, for ranks on other machines, if the latest part ended it."""
        issued, parts, updates = self._passed
        if self.start is not None and issued and updates == self.updates and not self.clock.held and self.clock.step:
            self.start.place = issued, parts, self.clock.step

    def _step_done(self) -> None:
        if not self.steps_count:
            self.clock.step = 0
            self.clock.finished.clear()
            return
        if self._parallelism.unsettled and self.clock.step:
            settled = self._parallelism.decide_from_evidence(
                self._identity.facts.world_size,
                ddp=self._ddp or self._models,
                forward=self._forwards,
                on_device=self.clock.device is not None,
            )
            self._identity.set_parallelism(*settled)
        if self.clock.step:
            self._identity.reach_stage(STAGE_TRAINING)
            self._tell_place()

    # --- optimizer ---------------------------------------------------------------------------------------------

    def optimizer_in_backward(self, key: int, *_: object) -> None:
        """Handle an optimizer that steps in a hook of backward, before all gradients are reduced."""
        self.beats += 1
        self.iteration.optimizer_in_backward(key)

    def optimizer_begins(self, key: int, rate: object, _none: None) -> None:
        """Handle the start of an optimizer's step. key: its id. rate: its learning rate."""
        self.beats += 1
        if self._scaler_steps:
            self._scaler_steps = False
            self.skips.append(False)
        clock = self.clock
        if clock.aside is not None:
            clock.trained()
        self._around.clear()  # An exception may have ended a backward without a note.
        self._cache.reset()
        clock.base = OPTIMIZER
        clock.enter_phase(OPTIMIZER)
        self._closures = 0
        if isinstance(rate, (float, int)):
            clock.learning_rate = float(rate)

    def optimizer_ends(self, key: int, models: bool, unreduced: bool) -> None:
        """Handle the end of an optimizer's step.

        Args:
            key: Id of the optimizer.
            models: True if there are DDP models.
            unreduced: True if a backward since the last optimizer step left gradients that were not reduced.

        """
        self._models = models
        self.clock.base = OTHER
        now = self.clock.leave_phase()
        self.gradients_taken(key)  # These include the gradients that the optimizer's closure computed.
        self.updates += unreduced
        self.unsynchronised += unreduced and models
        if not self._ddp and not self._marked and (unreduced or not models):
            self.clock.cut(now)
            self.gradients_taken(key)

    def scaler_steps(self, key: int, *_: object) -> None:
        """Handle GradScaler.step. The optimizer's step comes next, unless the scaler skips this update."""
        if self._scaler_steps:
            self.skips.append(True)
        self._scaler_steps = True
        self.gradients_taken(key)

    def gradients_taken(self, key: int, *_: object) -> None:
        """Handle an update: an optimizer, or a scaler that skips it, consumes the synchronised gradients."""
        if self._reductions[-1]:
            latest = self._reductions[-AGREEING_UPDATES:]
            if len(latest) == AGREEING_UPDATES and len(set(latest)) == 1:
                self.reductions = latest[0]
            self._reductions = [*latest, 0]
        if not self.clock.held:
            self.clock.skips_first = False  # No counted part belongs to this update, so the next step is whole.
        if self.clock.held and not self._marked:
            self.iteration.note_update(key)
            self._step_done()

    # --- besides training --------------------------------------------------------------------------------------

    def evaluation_begins(self, *_: object) -> None:
        """Handle `eval()` on a model that is trained here."""
        if not self._trains_in_eval:
            self.clock.evaluates(explained=True)

    def collected(self, duration_ns: int, *_: object) -> None:
        """Add a garbage collection to the step. duration_ns: time for which it stopped every thread."""
        self.clock.part.gc += duration_ns


EVERY_STEP = (
    Account.fetch_begins,
    Account.fetch_ends,
    Account.forward_begins,
    Account.forward_held_out,
    Account.forward_ends,
    Account.backward_begins,
    Account.backward_ends,
    Account.optimizer_begins,
    Account.optimizer_ends,
)
"""Readers of the notes of every step. Such a note has its reader's index here, because the garbage collector stops
visiting tuples of plain values.
"""
(
    FETCH_BEGINS,
    FETCH_ENDS,
    FORWARD_BEGINS,
    FORWARD_HELD_OUT,
    FORWARD_ENDS,
    BACKWARD_BEGINS,
    BACKWARD_ENDS,
    OPTIMIZER_BEGINS,
    OPTIMIZER_ENDS,
) = range(len(EVERY_STEP))
