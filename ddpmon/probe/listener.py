"""What the probe makes of the calls it hears: phases, synchronisations, loss, samples, the end of a step.

One object per process, on the training thread. `hooks` calls it; `stepclock` keeps its time; `sender` takes what
it has gathered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpmon import api
from ddpmon.messages import (
    DDP,
    STAGE_GROUP,
    STAGE_MODEL,
    STAGE_TRAINING,
    SYNC_BUFFERS,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
)
from ddpmon.probe.collectives import position
from ddpmon.probe.counting import count
from ddpmon.probe.cuda import Events
from ddpmon.probe.digest import Sampled, due, sample
from ddpmon.probe.identity import Identity
from ddpmon.probe.loops import Loops
from ddpmon.probe.loss import Loss
from ddpmon.probe.parallelism import Parallelism
from ddpmon.probe.pauses import Pauses
from ddpmon.probe.records import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER
from ddpmon.probe.replica import Replica, reduced_parameters
from ddpmon.probe.said import Said

if TYPE_CHECKING:
    from ddpmon.probe.buckets import Buckets

SAMPLED = 10_000
"""Digests that wait for the sending thread; a process that never sends keeps no more."""


class Listener(Said):
    """Hears the training thread and keeps its clock."""

    def __init__(self, identity: Identity) -> None:
        self.on_start: Callable[[], None] | None = None
        """Called once when this process turns out to be a rank."""
        self.on_set_up: Callable[[], None] | None = None
        """Called when something was made that a step needs: by now the script has imported what it trains with."""
        self.buckets: Buckets | None = None
        """Records every bucket, where that was asked for."""
        self.parallelism = Parallelism()
        self.pauses = Pauses(self)
        self.begin(identity)

    def begin(self, identity: Identity) -> None:
        """Start from nothing: a new process."""
        super().begin(identity)
        self.parallelism.begin()
        self.pauses.begin()
        self.sampled: deque[Sampled] = deque(maxlen=SAMPLED)
        """Digests of replicas whose values are still to arrive from the device."""
        self.events: Events | None = None
        """The events of the GPU's timeline, where there is one."""
        self.loops = Loops(identity.note)
        self.loader: tuple[object, object] = (None, None)
        """Workers of the DataLoader that was read last, and whether it pins its batches."""
        self.unsynchronised = 0
        """Optimizer steps on gradients that were not synchronised, though there is a DDP model."""
        self._unreduced = False
        """Whether a backward since the last optimizer step left such gradients."""
        self._prepared: list[Replica] = []
        self._sync_depth = 0
        self._arrival = 0
        self._fetch_began = 0
        self._fetching = 0
        self._loss = Loss(self.readings)
        self._gc_began = monotonic_ns()
        self._ddp = False
        """Whether gradients were ever synchronised here: then that ends a step, and nothing else does."""
        self._closures = 0
        """Backward calls in the closure of the optimizer that steps."""

    def start(self) -> None:
        """This process is a rank."""
        if self.on_start is not None:
            on_start, self.on_start = self.on_start, None
            api.attach(self)
            on_start()

    # --- process group and model -------------------------------------------------------------------------------

    def group_ready(self, _result: object, *_args: object) -> None:
        self._on_training_thread()
        self.identity.take_group()
        self.identity.reached(STAGE_GROUP)
        self.parallelism.unsettled = True
        self.set_up()
        self.start()

    def model_wrapped(self, _result: object, model: DistributedDataParallel, *_args: object) -> None:
        self._on_training_thread()
        replica = self.replicas.of(model)
        self.identity.take_model(model, replica.gradient_bytes, replica.buffer_bytes)
        self.identity.reached(STAGE_MODEL)
        self.parallelism.wrapped(model)
        self.identity.trains(DDP, [])
        if self.identity.cuda_device is not None:
            replica.follow(self._follow_device())
        self.set_up()
        self.start()

    def optimizer_made(self, _result: object, optimizer: object, *_args: object) -> None:
        self.iteration.made(optimizer)
        self.set_up()

    def set_up(self) -> None:
        """Something was made that a step needs: the first step begins later, and not with the imports."""
        if self.on_set_up is not None:
            self.on_set_up()
        if self.clock.step == 0 and not self._unreduced and not self._prepared:
            self.begun = False
            self.begin_first_step()

    def begin_first_step(self) -> None:
        if self.clock.step == 0:
            if self.events is not None:
                self.clock.follow(self.events)
            else:
                self.clock.begin(monotonic_ns())

    def _follow_device(self) -> Events:
        """From here on, steps lie on the GPU's timeline."""
        if self.events is None:
            self.events = Events()
            self.identity.steps_on_device()
            self.clock.follow(self.events)
        return self.events

    # --- data --------------------------------------------------------------------------------------------------

    def fetch_begins(self, iterator: object) -> None:
        clock = self.clock
        self.loader = (getattr(iterator, "_num_workers", None), getattr(iterator, "_pin_memory", None))
        clock.base = OTHER
        if not self.begun:
            self.begun = True
            self.begin_first_step()
        self._fetching = id(iterator)
        self._fetch_began = clock.enter(DATA)

    def fetch_ends(self, batch: object, iterator: object) -> None:
        self.beats += 1
        self.clock.fetched(id(iterator), self._fetch_began, *count(batch))

    def fetch_fails(self) -> None:
        """The loader has no more (StopIteration), or it raised."""
        self._backward_depth = 0
        self.clock.exhausted[self._fetching] = self.clock.leave() - self._fetch_began

    def phase_fails(self) -> None:
        """A call raised, which ends its phase too."""
        self._backward_depth = 0
        self.clock.leave()

    # --- forward -----------------------------------------------------------------------------------------------

    def forward_begins(self, model: DistributedDataParallel, *inputs: object, **named: object) -> None:
        self.beats += 1
        if self.pauses.evaluates(model):
            return
        if self.buckets is not None:
            self.buckets.prepare(model)
        clock = self.clock
        clock.trained()
        clock.enter_after_gap(FORWARD, 0)
        replica = self.replicas.of(model)
        if replica.digested < clock.step and due(clock.step):
            replica.digested = clock.step
            self._digest(replica, model)
        self._count_inputs(replica.number, inputs, named)

    def _digest(self, replica: Replica, model: DistributedDataParallel, updates: int = 0) -> None:
        place = position(model.process_group)
        sampled = sample(reduced_parameters(model), self.clock.step, replica.number, *place, updates)
        if sampled is not None:
            self.sampled.append(sampled)

    def _count_inputs(self, model: int, inputs: object, named: object) -> None:
        again = self.clock.base == OPTIMIZER and self._closures
        if self.clock.marked_samples is None and not again:
            samples, tokens = count(inputs)
            if not samples:
                samples, tokens = count(named)
            fed = self.clock.fed.setdefault(model, [0, 0, 0])
            fed[0] += samples
            fed[1] += tokens
            fed[2] += 1

    def forward_ends(self, _result: object, _model: DistributedDataParallel, *_args: object) -> None:
        if self.clock.phase == FORWARD:
            self.clock.leave()

    def parallel_begins(self, kind: str, model: object, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """A forward begins of a model that something else than DDP runs."""
        if not self.parallelism.forward_begins(kind, model):
            return
        self.beats += 1
        if self.pauses.evaluates(model):
            return
        self.clock.trained()
        self.clock.enter_after_gap(FORWARD, 0)
        if (inputs or named) and self.parallelism.is_counted(model):
            self._count_inputs(0, inputs, named)

    def parallel_ends(self, _result: object, model: object, *_args: object) -> None:
        if self.parallelism.forward_ends(model) and self.clock.phase == FORWARD:
            self.clock.leave()

    def parallel_fails(self) -> None:
        self.parallelism.forward_fails()
        self.phase_fails()

    def backward_expected(self, _result: object, reducer: object, *_args: object) -> None:
        """DDP's reducer was told that the next backward is one whose gradients it reduces.

        DDP says so itself at the end of a forward, some scripts and frameworks later. The reducer's times of ready
        gradients count from here.
        """
        replica = self.replicas.of_reducer(reducer)
        if replica is not None:
            replica.expected_at = monotonic_ns()
            if replica not in self._prepared:
                self._prepared.append(replica)

    # --- synchronisations --------------------------------------------------------------------------------------

    def synchronisation_begins(self, *_args: object, **_named: object) -> None:
        self._sync_depth += 1
        if self._sync_depth == 1:
            self._arrival = self.clock.block()

    def synchronisation_fails(self) -> None:
        self._sync_depth = 0
        self.clock.block_not()

    def _synchronised(self, kind: int, payload_bytes: int) -> None:
        self._sync_depth -= 1
        if self._sync_depth == 0:
            self.clock.unblock(kind, self._arrival, payload_bytes)

    def buffers_synchronised(self, _result: object, model: DistributedDataParallel) -> None:
        self._synchronised(SYNC_BUFFERS, self.replicas.of(model).buffer_bytes)

    def collective_done(self, result: object, *args: object) -> None:
        self.beats += 1
        if hasattr(result, "wait"):
            self._sync_depth -= 1  # asynchronous: nobody was blocked
            if self._sync_depth == 0:
                self.clock.block_not()
            return
        payload = args[0] if args and isinstance(args[0], torch.Tensor) else None
        self._synchronised(SYNC_COLLECTIVE, 0 if payload is None else payload.numel() * payload.element_size())

    # --- backward ----------------------------------------------------------------------------------------------

    def loss_scaled(self, scaled: object, _scaler: object, loss: object = None, *_args: object) -> None:
        """GradScaler: backward will be called on `scaled`, but the loss is what it was made from."""
        self._loss.scaled(scaled, loss)

    def backward_begins(
        self, outputs: tuple[object, ...], *_args: object, accumulate_grad: bool = False, **_named: object
    ) -> None:
        self._backward_depth += 1
        if self._backward_depth > 1:
            return
        if self.buckets is not None:
            self.buckets.backward_begins()
        clock = self.clock
        if accumulate_grad:
            self.pauses.trains()
            clock.trained()  # without DDP no forward is heard
        clock.enter_after_gap(BACKWARD, 1)
        if accumulate_grad and len(outputs) == 1:
            loss = self._loss.read(outputs[0])
            if clock.base == OPTIMIZER:
                self._closures += 1
            if loss is not None and not self._closed_before():
                clock.losses.append(loss)

    def _closed_before(self) -> bool:
        """Whether this optimizer's step has called its closure before: LBFGS does so many times, on one batch."""
        return self.clock.base == OPTIMIZER and self._closures > 1

    def backward_ends(self, _result: object, *_args: object) -> None:
        self._backward_depth -= 1
        if self._backward_depth:
            return
        self.beats += 1
        clock = self.clock
        now = clock.leave()
        self._unreduced = True
        if not self._prepared:
            return
        waiting = []
        synchronised = 0
        latest = 0
        event = None
        for replica in self._prepared:
            arrival = replica.arrival(now)
            if arrival is None:
                waiting.append(replica)
            else:
                if arrival >= latest:
                    latest, event = arrival, replica.event
                replica.event = None
                synchronised += replica.gradient_bytes
        self._prepared = waiting
        if latest:
            clock.blocked_at_the_end(SYNC_GRADIENTS, min(latest, now), now, synchronised, BACKWARD, event)
            self._ddp = True
            self._unreduced = False
            clock.cut(now)
            self.iteration.synchronised(marked=self.marked)
            self.first_step_done()

    def first_step_done(self) -> None:
        if self.parallelism.unsettled and self.clock.step:
            self._tell_parallelism()
        if self.clock.step == 1:
            self.identity.reached(STAGE_TRAINING)

    def _tell_parallelism(self) -> None:
        replicas = list(self.replicas.values())
        on_device = self.events is not None
        self.identity.trains(*self.parallelism.settle(self.identity.world_size, replicas, on_device=on_device))

    # --- optimizer ---------------------------------------------------------------------------------------------

    def optimizer_begins(self, optimizer: Any = None, *_args: object) -> None:
        if self.hears():
            self.start()
            self.parallelism.steps(optimizer)
            clock = self.clock
            self.beats += 1
            if self._backward_depth:
                self.iteration.taken = optimizer  # inside a hook of backward: before the gradients are all reduced
                return
            if clock.pausing is not None:
                clock.trained()
            self._gradients_taken(optimizer)
            clock.base = OPTIMIZER
            clock.enter(OPTIMIZER)
            self._closures = 0
            rate = optimizer.param_groups[0].get("lr") if optimizer is not None else None
            if isinstance(rate, (float, int)):
                clock.learning_rate = float(rate)

    def optimizer_ends(self, optimizer: Any = None, *_args: object) -> None:
        if self.hears() and not self._backward_depth:
            self.clock.base = OTHER
            now = self.clock.leave()
            self._gradients_taken(optimizer)  # in a closure
            if self.replicas:
                self.unsynchronised += self._unreduced
            if not self._ddp and not self.marked and (self._unreduced or not self.replicas):
                self.clock.cut(now)
                self._gradients_taken(optimizer)
            if self._unreduced and due(self.unsynchronised):
                for replica in list(self.replicas.values()):
                    if (model := replica.model()) is not None:
                        self._digest(replica, model, self.unsynchronised)
            self._unreduced = False

    def scaler_steps(self, _scaler: object, optimizer: Any = None, *_args: object, **_named: object) -> None:
        """GradScaler.step: it takes the gradients, even where it finds them infinite and skips the optimizer."""
        self._gradients_taken(optimizer)

    def _gradients_taken(self, optimizer: Any) -> None:
        if self.clock.held and not self.marked and optimizer is not None:
            self.iteration.updated(optimizer)
            self.first_step_done()

    def collecting(self, phase: str, _info: dict[str, int]) -> None:
        """gc's callback: the collector stops every thread, whichever set it off."""
        if phase == "start":
            self._gc_began = monotonic_ns()
        else:
            self.clock.gc += monotonic_ns() - self._gc_began
