"""Reads the training thread's notes and turns them into phases, synchronisations, losses, samples and ends of steps.

`listener` notes what it hears; here the notes are read in their order, on the background thread once there is one.
`stepclock` keeps the time, `iteration` tells where steps end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ddpmon.messages import SCALED_UPDATES, STAGE_TRAINING, SYNC_GRADIENTS
from ddpmon.probe.digest import SampledElements
from ddpmon.probe.gradient_cache import GradientCache
from ddpmon.probe.identity import Identity
from ddpmon.probe.journal import Journal
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
from ddpmon.probe.script_notes import WAITING, ScriptNotes

ALIKE = 3
"""Updates before which gradients were reduced equally often: the last one of an epoch may differ."""


class Account(ScriptNotes):
    """Reads notes: each method with three arguments is the reader of one kind, at the moment `journal.now`."""

    def __init__(self, identity: Identity, parallelism: Parallelism, journal: Journal) -> None:
        super().__init__(identity, journal)
        self.sampled: deque[SampledElements] = deque(maxlen=WAITING)
        """Digests of replicas whose values are still to arrive from the device."""
        self.updates = 0
        """The count in `messages.step_counter`, up to the note that is read."""
        self.unsynchronised = 0
        """Optimizer steps on gradients that were not synchronised, though there is a DDP model."""
        self._parallelism = parallelism
        self._models = False
        """True if there was a DDP model at the last optimizer step."""
        self._forwards = False
        """True if there ever was a forward with gradients."""
        self._arrival = 0
        self.reductions = 0
        """Number of reductions before each of the last updates, as long as it was the same each time."""
        self._reductions: list[int] = [0]
        """Number of reductions before each of the last updates, and since the latest one."""
        self._ddp = False
        """True if gradients were ever synchronised here: then that ends a step, and nothing else does."""
        self._passed = 0, 0, 0
        """Where the latest part of a step ended, for ranks of other machines: collectives, parts and updates so far."""
        self._closures = 0
        """Backward calls in the closure of the optimizer that steps."""
        self._cache = GradientCache()
        self._trained: set[int] = set()
        """Numbers of models that had a forward with gradients."""
        self._around: list[int] = []
        """Stack of the backwards that run: the phase to return to after each."""
        self._undecided = False
        """True if the last forward was of a model in evaluation mode, with gradients."""
        self._trains_in_eval = False
        """True if a model in evaluation mode was trained: then the mode means nothing."""
        self._in_training_mode: set[int] = set()
        """Numbers of models that had a forward with gradients in training mode."""
        self.held_out = 0
        """Backwards in a row that reduced gradients of one of them in evaluation mode."""
        self.skips: deque[bool] = deque(maxlen=SCALED_UPDATES)
        """Latest updates through a GradScaler: True for each that it skipped."""
        self._scaler_steps = False
        """True if a GradScaler was to step an optimizer, and no optimizer has stepped since."""

    # --- set-up ------------------------------------------------------------------------------------------------

    def set_up(self, expecting: bool, *_: object) -> None:
        """Something was made that a step needs: the first step begins later, and not with the imports.

        expecting: the first step has begun, its forward is done.
        """
        if not (self.clock.step or self.clock.held or expecting):
            self._begun = False
            self._begin_first_step()

    def follow_device(self, *_: object) -> None:
        """Measure steps on the GPU's timeline from here on."""
        self.clock.follow(self._journal)

    def optimizer_made(self, key: int, *_: object) -> None:
        """An optimizer was made. key: its id."""
        self.iteration.optimizer_made(key)

    def optimizer_named(self, key: int, name: str, others: Sequence[int]) -> None:
        """An optimizer steps for the first time. name: of what it updates. others: those that update parts of it."""
        self._names[key] = name
        for other in others:
            self.iteration.optimizer_gone(other)

    def optimizer_gone(self, key: int, *_: object) -> None:
        """The optimizer of this id exists no more."""
        self.iteration.optimizer_gone(key)
        self._names.pop(key, None)

    # --- forward -----------------------------------------------------------------------------------------------

    def phase_fails(self, *_: object) -> None:
        """A forward raised, which ends its phase too."""
        self.clock.leave()

    def forward_begins(self, model: int, samples: int, tokens: int) -> None:
        """A forward in training mode, with gradients, of a model by its number; -1: its inputs are not counted."""
        self.beats += 1
        self._forward_with_gradients()
        self._undecided = False
        self._in_training_mode.add(model)
        self.held_out = 0
        self._trains(model, samples, tokens)

    def forward_held_out(self, model: int, samples: int, tokens: int) -> None:
        """One in evaluation mode, with gradients: some evaluate without switching them off, some train so."""
        self.beats += 1
        self._forward_with_gradients()
        self._undecided = not self._trains_in_eval and self.clock.pausing is not None
        if not self._undecided:  # else a backward decides
            self._trains(model, samples, tokens)

    def _forward_with_gradients(self) -> None:
        self._forwards = True
        self._cache.forward(self.clock.part.losses, inside_backward=bool(self._around))

    def forward_without_gradients(self, model: int, held_out: bool, _none: None) -> None:
        """One that trains nothing. held_out: in evaluation mode, in which a teacher, never trained, always is."""
        self.beats += 1
        clock = self.clock
        clock.evaluates(explained=held_out and not self._trains_in_eval and max(0, model) in self._trained)
        clock.forward_without_gradients()
        self._cache.forward_without_gradients()
        clock.enter(FORWARD)

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
        """A forward returned."""
        if self.clock.phase == FORWARD:
            self.clock.leave()

    def digest_taken(self, sampled: SampledElements, *_: object) -> None:
        """A few elements of a model were taken: of the step that runs."""
        sampled.step = self.clock.step
        if self.steps_count:
            self.sampled.append(sampled)

    # --- synchronisations --------------------------------------------------------------------------------------

    def synchronisation_begins(self, *_: object) -> None:
        """The training thread arrives at a synchronisation."""
        self._arrival = self.clock.block()

    def synchronisation_was_none(self, *_: object) -> None:
        """It raised, or it is asynchronous: nobody was blocked."""
        self.beats += 1
        self.clock.block_not()

    def synchronised(self, kind: int, payload_bytes: int, _none: None) -> None:
        """The synchronisation is over."""
        self.beats += 1
        self.clock.unblock(kind, self._arrival, payload_bytes)

    # --- backward ----------------------------------------------------------------------------------------------

    def backward_begins(self, accumulates: bool, single: bool, loss: object) -> None:
        """Gradients are made. accumulates: into parameters. single: of one output. loss: the loss, if it is one."""
        clock = self.clock
        if accumulates:
            self._trains_in_eval = self._trains_in_eval or self._undecided
            clock.trained()  # without DDP there is no note of a forward
        clock.enter_after_gap(BACKWARD, 1)
        if accumulates:
            again = False
            if single and clock.base == OPTIMIZER:  # LBFGS calls its closure many times, on one batch
                self._closures += 1
                again = self._closures > 1
            self._cache.backward(clock.part.losses, None if again else loss)
        self._around.append(clock.base)
        clock.base = BACKWARD

    def backward_fails(self, *_: object) -> None:
        """A backward raised, which ends its phase too."""
        self._leave_backward()

    def _leave_backward(self) -> int:
        self.clock.base = self._around.pop() if self._around else OTHER
        return self.clock.leave()

    def bucket_launched(self, bucket: list[int], *_: object) -> None:
        """A bucket's all-reduce was handed over: its layout, launch and end; the end is filled in when it has ended."""
        self.clock.part.buckets.append(bucket)

    def backward_ends(self, reductions: Sequence[Reduction], *_: object) -> None:
        """Gradients are made, and those of these models are reduced: all arrive with the last one of them."""
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
            its_arrival = expected_at + max(ready) if ready else now  # else the backward's end counts
            if its_arrival > arrival:
                arrival, event = its_arrival, its_event
            self.held_out += held_out in self._in_training_mode
        clock.blocked_at_the_end(SYNC_GRADIENTS, min(arrival, now), now, payload_bytes, BACKWARD, event)
        self._ddp = True
        self.updates += 1
        self._reductions[-1] += clock.base != OPTIMIZER  # each closure needs gradients of its own
        self._cut(now)

    def _cut(self, now: int) -> None:
        """A part of a step ends with this backward."""
        self.clock.cut(now)
        self.iteration.synchronised(marked=self._marked)
        self._step_done()

    def shadowed(self, *_: object) -> None:
        """This rank's data has run out, and it joined the synchronisation of the others: a step of theirs."""
        self.pause_ends()
        self.updates += 1
        self.clock.cut(self._journal.now)
        self.iteration.shadowed()
        self._step_done()

    def passed(self, issued: int, count: int, whole: bool) -> None:
        """A part of a step ended here in a process that trained before it was watched.

        Args:
            issued: Collectives so far.
            count: Count of such parts so far, of which none was counted as a step.
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
        """Tell the ranks of other machines where the latest step ended, if that was at the latest part."""
        issued, parts, updates = self._passed
        if self.start is not None and issued and updates == self.updates and not self.clock.held and self.clock.step:
            self.start.place = issued, parts, self.clock.step

    def _step_done(self) -> None:
        if not self.steps_count:
            self.clock.step = 0
            self.clock.finished.clear()
            return
        if self._parallelism.unsettled and self.clock.step:
            settled = self._parallelism.settle(
                self._identity.world_size,
                ddp=self._ddp or self._models,
                forward=self._forwards,
                on_device=self.clock.device is not None,
            )
            self._identity.trains(*settled)
        if self.clock.step:
            self._identity.reached(STAGE_TRAINING)
            self._tell_place()

    # --- optimizer ---------------------------------------------------------------------------------------------

    def optimizer_in_backward(self, key: int, *_: object) -> None:
        """An optimizer steps in a hook of backward: before the gradients are all reduced."""
        self.beats += 1
        self.iteration.optimizer_in_backward(key)

    def optimizer_begins(self, key: int, rate: object, _none: None) -> None:
        """An optimizer steps. key: its id. rate: what it has as learning rate."""
        self.beats += 1
        if self._scaler_steps:
            self._scaler_steps = False
            self.skips.append(False)
        clock = self.clock
        if clock.aside is not None:
            clock.trained()
        self._around.clear()  # an exception may have left a backward
        self._cache.reset()
        clock.base = OPTIMIZER
        clock.enter(OPTIMIZER)
        self._closures = 0
        if isinstance(rate, (float, int)):
            clock.learning_rate = float(rate)

    def optimizer_ends(self, key: int, models: bool, unreduced: bool) -> None:
        """An optimizer has stepped.

        Args:
            key: Its id.
            models: There are DDP models.
            unreduced: A backward since the last step of an optimizer left gradients that were not reduced.

        """
        self._models = models
        self.clock.base = OTHER
        now = self.clock.leave()
        self.gradients_taken(key)  # those of its closures too
        self.updates += unreduced
        self.unsynchronised += unreduced and models
        if not self._ddp and not self._marked and (unreduced or not models):
            self.clock.cut(now)
            self.gradients_taken(key)

    def scaler_steps(self, key: int, *_: object) -> None:
        """A GradScaler is to step an optimizer: it does so next, or skips this update and takes the gradients."""
        if self._scaler_steps:
            self.skips.append(True)
        self._scaler_steps = True
        self.gradients_taken(key)

    def gradients_taken(self, key: int, *_: object) -> None:
        """An optimizer takes the gradients that were synchronised, or its scaler does for it."""
        if self._reductions[-1]:
            latest = self._reductions[-ALIKE:]
            if len(latest) == ALIKE and len(set(latest)) == 1:
                self.reductions = latest[0]
            self._reductions = [*latest, 0]
        if not self.clock.held:
            self.clock.skips_first = False  # the step before ended with its gradients, and this one is whole
        if self.clock.held and not self._marked:
            self.iteration.updated(key)
            self._step_done()

    # --- besides training --------------------------------------------------------------------------------------

    def evaluation_begins(self, *_: object) -> None:
        """Note that a model which is trained here was put into evaluation mode."""
        if not self._trains_in_eval:
            self.clock.evaluates(explained=True)

    def collected(self, duration_ns: int, *_: object) -> None:
        """The garbage collector stopped every thread for so long."""
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
"""Readers of what every step notes, which names them by their place here: a tuple of plain values is one that the
garbage collector lets go of when it first comes by."""
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
