"""What the probe makes of the calls it hears: phases, synchronisations, loss, samples, the end of a step.

One object per process, on the training thread. `hooks` calls it; `stepclock` keeps its time; `sender` takes what
it has gathered.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpmon import api
from ddpmon.messages import (
    MAX_NAME,
    MAX_NAMES,
    STAGE_GROUP,
    STAGE_MODEL,
    STAGE_TRAINING,
    SYNC_BUFFERS,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
)
from ddpmon.probe.collectives import position
from ddpmon.probe.counting import count
from ddpmon.probe.cuda import Events, Readings
from ddpmon.probe.digest import Sampled, due, sample
from ddpmon.probe.identity import Identity
from ddpmon.probe.loss import Loss
from ddpmon.probe.replica import Replica, Replicas, reduced_parameters
from ddpmon.probe.stepclock import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER, StepClock

if TYPE_CHECKING:
    from ddpmon.probe.buckets import Buckets

WITHOUT_DDP = "no DistributedDataParallel seen: a step ends with the optimizer's, and forward counts as other"
WITH_DATA_PARALLEL = "nn.DataParallel instead of DistributedDataParallel: a step ends with the optimizer's"
SCALARS = 10_000
"""Values of `ddpmon.log` that wait for the sending thread; a process that never sends keeps no more."""


class Listener:
    """Hears the training thread and keeps its clock."""

    def __init__(self, identity: Identity) -> None:
        self.on_start: Callable[[], None] | None = None
        """Called once when this process turns out to be a rank."""
        self.buckets: Buckets | None = None
        """Where every bucket is to be recorded."""
        self.begin(identity)

    def begin(self, identity: Identity) -> None:
        """Start from nothing: a new process."""
        self.identity = identity
        self.clock = StepClock()
        self.scalars: deque[tuple[int, str, object]] = deque(maxlen=SCALARS)
        self.sampled: deque[Sampled] = deque(maxlen=SCALARS)
        """Digests of replicas on their way."""
        self.readings = Readings()
        self.events: Events | None = None
        """On a GPU: the events of its timeline."""
        self.listening = True
        self.total_steps: int | None = None
        self.thread = threading.main_thread().ident
        """The training thread: the one that set up the process group or wrapped a model."""
        self.native_thread = threading.main_thread().native_id
        self.loader: tuple[object, object] = (None, None)
        """Workers of the DataLoader that was read last, and whether it pins its batches."""
        self.replicas = Replicas()
        self._prepared: list[Replica] = []
        self._sync_depth = 0
        self._arrival = 0
        self._fetch_began = 0
        self._backward_depth = 0
        self._loss = Loss(self.readings)
        self._gc_began = monotonic_ns()
        self._unreduced = False
        """Whether a backward since the last optimizer step left gradients that were not synchronised."""
        self.unsynchronised = 0
        """Optimizer steps on such gradients, though there is a DDP model."""
        self._begun = False
        """Whether something was fetched or a marked step was entered since the last set-up."""
        self._parallel = False
        """Whether a forward of nn.DataParallel was heard."""
        self._ddp = False
        """Whether gradients were ever synchronised here: then that ends a step, and nothing else does."""
        self._marked = False
        self._marked_step = 0
        self._explicit_samples: int | None = None

    # --- who hears ---------------------------------------------------------------------------------------------

    def hears(self) -> bool:
        """Whether this call is on the training thread of a process that is watched."""
        return self.listening and threading.get_ident() == self.thread

    def hears_collective(self) -> bool:
        """The same for a collective: inside backward, autograd calls it on a thread of its own for each GPU."""
        if not self.listening:
            return False
        if threading.get_ident() == self.thread:
            return True
        return self._backward_depth > 0 and torch._C._current_graph_task_id() != -1

    def _on_training_thread(self) -> None:
        self.thread = threading.get_ident()
        self.native_thread = threading.get_native_id()

    def leave(self, error: BaseException) -> None:
        """Something in the probe went wrong: say so once, and stop listening. Training goes on."""
        if not self.listening:
            return
        self.listening = False
        api._probe = None
        print(
            f"ddpmon: the probe failed ({type(error).__name__}: {error}) and has left this process; "
            "training goes on unwatched",
            file=sys.stderr,
        )

    def start(self) -> None:
        """This process is a rank."""
        if self.on_start is not None:
            on_start, self.on_start = self.on_start, None
            api._probe = self
            on_start()

    # --- process group and model -------------------------------------------------------------------------------

    def group_ready(self, _result: object, *_args: object) -> None:
        self._on_training_thread()
        self.identity.take_group()
        self.identity.reached(STAGE_GROUP)
        self.set_up()
        self.start()

    def model_wrapped(self, _result: object, model: DistributedDataParallel, *_args: object) -> None:
        self._on_training_thread()
        replica = self.replicas.of(model)
        self.identity.take_model(model, replica.gradient_bytes, replica.buffer_bytes)
        self.identity.reached(STAGE_MODEL)
        if self.identity.cuda_device is not None:
            replica.follow(self._follow_device())
        self.set_up()
        self.start()

    def set_up(self, *_args: object) -> None:
        """Something was made that a step needs: the first step begins later, and not with the imports."""
        if self.clock.step == 0 and not self._unreduced and not self._prepared:
            self._begun = False
            self._begin_first_step()

    def _begin_first_step(self) -> None:
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
        if not self._begun:
            self._begun = True
            self._begin_first_step()
        self._fetch_began = clock.enter(DATA)

    def fetch_ends(self, batch: object, iterator: object) -> None:
        if self.replicas or self._parallel:
            self.clock.fetched(id(iterator), self._fetch_began)
        else:
            self.clock.fetched(id(iterator), self._fetch_began, *count(batch))

    def phase_fails(self) -> None:
        """The loader ended (StopIteration) or a call raised: the phase is over either way."""
        self._backward_depth = 0
        self.clock.leave()

    # --- forward -----------------------------------------------------------------------------------------------

    def forward_begins(self, model: DistributedDataParallel, *inputs: object, **named: object) -> None:
        if not torch.is_grad_enabled():
            self.clock.evaluated()
            return
        if self.buckets is not None:
            self.buckets.prepare(model)
        clock = self.clock
        clock.trained()
        clock.enter(FORWARD)
        replica = self.replicas.of(model)
        if replica.digested < clock.step and due(clock.step):
            replica.digested = clock.step
            self._digest(replica, model)
        self._count_inputs(inputs, named)

    def _digest(self, replica: Replica, model: DistributedDataParallel, updates: int = 0) -> None:
        place = position(model.process_group)
        sampled = sample(reduced_parameters(model), self.clock.step, replica.number, *place, updates)
        if sampled is not None:
            self.sampled.append(sampled)

    def _count_inputs(self, inputs: object, named: object) -> None:
        if self._explicit_samples is None:
            samples, tokens = count(inputs)
            if not samples:
                samples, tokens = count(named)
            self.clock.samples += samples
            self.clock.tokens += tokens

    def parallel_begins(self, _model: object, *inputs: object, **named: object) -> None:
        """The forward of nn.DataParallel: one process, whose threads each drive a device."""
        clock = self.clock
        if not torch.is_grad_enabled():
            clock.evaluated()
            return
        clock.trained()
        if not self._parallel:
            self._parallel = True
            clock.samples = clock.tokens = 0  # the batch was counted when it was fetched
        clock.enter(FORWARD)
        self._count_inputs(inputs, named)

    def parallel_ends(self, *_args: object) -> None:
        if torch.is_grad_enabled():
            self.clock.leave()

    def forward_ends(self, _result: object, model: DistributedDataParallel, *_args: object) -> None:
        if not torch.is_grad_enabled():
            return
        now = self.clock.leave()
        if model.require_backward_grad_sync:
            replica = self.replicas.of(model)
            replica.forward_end = now
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
        self.clock.enter(BACKWARD)
        if accumulate_grad:
            self.clock.trained()  # without DDP no forward is heard
            if len(outputs) == 1:
                self.clock.loss = self._loss.read(outputs[0], self.clock.loss)

    def backward_ends(self, _result: object, *_args: object) -> None:
        self._backward_depth -= 1
        if self._backward_depth:
            return
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
            self._close(now)

    def _close(self, now: int) -> None:
        clock = self.clock
        if self._explicit_samples is not None:
            clock.samples, self._explicit_samples = self._explicit_samples, None
        clock.close(now)
        if clock.step == 1:
            self.identity.reached(STAGE_TRAINING)

    # --- optimizer ---------------------------------------------------------------------------------------------

    def optimizer_begins(self, optimizer: Any = None, *_args: object) -> None:
        if self.hears():
            self.start()
            self.clock.base = OPTIMIZER
            self.clock.enter(OPTIMIZER)
            rate = optimizer.param_groups[0].get("lr") if optimizer is not None else None
            if isinstance(rate, (float, int)):
                self.clock.learning_rate = float(rate)

    def optimizer_ends(self, *_args: object) -> None:
        if self.hears():
            self.clock.base = OTHER
            now = self.clock.leave()
            if self.replicas:
                self.unsynchronised += self._unreduced
            if not self._ddp and not self._marked and (self._unreduced or not self.replicas):
                if not self.replicas:
                    self.identity.note(WITH_DATA_PARALLEL if self._parallel else WITHOUT_DDP)
                self._close(now)
            if self._unreduced and due(self.unsynchronised):
                for replica in list(self.replicas.values()):
                    if (model := replica.model()) is not None:
                        self._digest(replica, model, self.unsynchronised)
            self._unreduced = False

    def collecting(self, phase: str, _info: dict[str, int]) -> None:
        """gc's callback: the collector stops every thread, whichever set it off."""
        if phase == "start":
            self._gc_began = monotonic_ns()
        else:
            self.clock.gc += monotonic_ns() - self._gc_began

    # --- what the script says itself ---------------------------------------------------------------------------

    def log(self, values: dict[str, float]) -> None:
        step = self._marked_step or self.clock.step + 1
        for name, value in values.items():
            reading: object = (
                self.readings.read(value) if isinstance(value, torch.Tensor) and value.is_cuda else float(value)
            )
            self.scalars.append((step, name, reading))

    def enter_step(self, samples: int | None, total: int | None) -> None:
        if self.hears():
            self._marked = True
            self._marked_step = self.clock.step + 1
            self._explicit_samples = samples
            if not self._begun:
                self._begun = True
                self._begin_first_step()
            if total is not None:
                self.total_steps = total

    def exit_step(self) -> None:
        if self.hears():
            self._marked_step = 0
            if not self._ddp and not self.replicas:
                self.start()
                self._close(self.clock.leave())

    def enter_phase(self, name: str) -> None:
        if self.hears():
            if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable():
                self.clock.enter_named(name)
            else:
                self.identity.note(f"ddpmon.phase takes names of 1 to {MAX_NAME} printable characters; one was not")

    def exit_phase(self, name: str) -> None:
        if self.hears() and isinstance(name, str) and not self.clock.exit_named(name):
            self.identity.note(f"more than {MAX_NAMES} names of ddpmon.phase in a step: the rest is left out")
