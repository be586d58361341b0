"""Handles the calls that the training thread makes now and then. `every_step` handles those of every step.

There is one listener per process. `hooks` calls it, and `account` reads the notes that it writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpmon import api
from ddpmon.messages import DDP, STAGE_GROUP, STAGE_MODEL, STEPS, SYNC_BUFFERS, SYNC_COLLECTIVE
from ddpmon.probe import run_settings
from ddpmon.probe.account import FORWARD_BEGINS, FORWARD_HELD_OUT, Account
from ddpmon.probe.batch_size import count_batch
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.cuda import Events
from ddpmon.probe.every_step import EveryStep
from ddpmon.probe.graph_search import UnusedSearch
from ddpmon.probe.identity import Identity
from ddpmon.probe.interception import wrap_attribute
from ddpmon.probe.replica import Replica

if TYPE_CHECKING:
    from ddpmon.probe.buckets import Buckets


CAPTURED = "a CUDA graph has captured the training, and ddpmon does not count the steps that the graph replays"


class Listener(EveryStep):
    """Receives all intercepted calls of the training thread."""

    def __init__(self, identity: Identity) -> None:
        self.on_start: Callable[[], None] | None = None
        """Called once when this process turns out to be a rank."""
        self._times_searches = False
        super().__init__()
        self.reset(identity)

    def reset(self, identity: Identity) -> None:
        """Reset all state, as in a new process."""
        super().reset(identity)
        self.loops = self.account.loops
        self._sync_depth = 0
        self._search_began = 0
        self._gc_began = monotonic_ns()

    def record_buckets(self, buckets: Buckets) -> None:
        """Record every bucket from now on. Called once per process."""
        self.buckets = buckets
        self.hot.before_forward = True
        buckets.install()

    def start(self) -> None:
        """Start the sender, because this process is a rank."""
        if self.on_start is not None:
            on_start, self.on_start = self.on_start, None
            api.attach(self)
            on_start()

    # --- process group and model -------------------------------------------------------------------------------

    def group_ready(self, _result: object, _arguments: object) -> None:
        self._adopt_thread()
        self._take_group()
        self.set_up()
        self.start()

    def _take_group(self) -> None:
        self.identity.take_group()
        self.identity.reach_stage(STAGE_GROUP)
        self.parallelism.invalidate_decision()

    @property
    def has_group(self) -> bool:
        """Return whether this process belongs to a process group."""
        return bool(torch.distributed.is_available() and torch.distributed.is_initialized())

    def found_running(self, ranks: int) -> None:
        """Set up a process that was training before the attach, from its process group.

        ranks: number of ranks on this machine; 0 if unknown.
        """
        if self.has_group:
            self._take_group()
        here = os.environ.get("LOCAL_WORLD_SIZE", "")
        ranks = ranks or (int(here) if here.isdecimal() else self.identity.facts.world_size)
        self.loops.join_late()
        machines = run_settings.in_force().hub_given
        self.account.start = CommonStart(min(ranks, self.identity.facts.world_size), machines=machines)
        self.set_up()

    def model_wrapped(self, _result: object, arguments: tuple[Any, ...]) -> None:
        self._adopt_thread()
        self.model_found(arguments[0])
        self.set_up()
        self.start()

    def model_found(self, model: DistributedDataParallel) -> None:
        """Register a model wrapped in DDP, most often when it is wrapped."""
        replica = self.replicas.replica_of(model)
        self.identity.take_model(model, replica.gradient_bytes, replica.buffer_bytes)
        self.identity.reach_stage(STAGE_MODEL)
        self.parallelism.examine_wrapped(model)
        self.identity.set_parallelism(DDP, [], None)
        if self.identity.cuda_device is not None:
            replica.events = self._follow_device()
        if model.find_unused_parameters:
            self._time_searches(replica)

    def _time_searches(self, replica: Replica) -> None:
        """Time DDP's search for unused parameters; install the hook for it with the first model that searches."""
        replica.search = UnusedSearch()
        if not self._times_searches:
            self._times_searches = True
            searches = "Reducer.prepare_for_backward"
            wrap_attribute(self, torch.distributed, searches, before=self.search_begins, after=self.search_ends)

    def search_begins(self, _arguments: object, _named: object) -> None:
        """Record when DDP begins to search the graph for unused parameters."""
        self._search_began = monotonic_ns()

    def search_ends(self, _result: object, arguments: tuple[Any, ...]) -> None:
        replica = self.replicas.by_reducer.get(id(arguments[0]))
        if replica is not None and replica.search is not None:
            replica.search.record_duration(monotonic_ns() - self._search_began)

    def optimizer_made(self, _result: object, arguments: tuple[Any, ...]) -> None:
        self.hear_of(arguments[0])
        self.set_up()

    def set_up(self) -> None:
        """Run the setup hooks, and note that the script made a model, an optimizer or a group before its first step."""
        for look in self.on_set_up:
            look()
        self.record(Account.set_up, bool(self.hot.expecting) or self.hot.unreduced)

    def _follow_device(self) -> Events:
        """Place steps on the GPU's timeline from now on."""
        events = self.hot.events
        if events is None:
            events = Events(lambda: self.identity.set_missing(STEPS, CAPTURED))
            self.hot.write_with(self.hot.note, events)
            self.hot.before_forward = True
            self.identity.set_facts(device_clock=True)
            self.record(Account.follow_device)
        return events

    # --- forward of wrappers other than DDP ----------------------------------------------------------------------

    def parallel_begins(self, kind: str, model: object, inputs: Sequence[Any], named: dict[str, Any]) -> None:
        """Note the start of a forward of a model that a wrapper other than DDP runs."""
        if self.parallelism.forward_begins(kind, model):
            number = 0 if (inputs or named) and self.parallelism.is_counted(model) else -1
            training = getattr(getattr(model, "module", model), "training", True)
            now = monotonic_ns()
            if not torch.is_grad_enabled():
                self.hot.mark((Account.forward_without_gradients, now, None, number, not training, None))
                return
            samples, tokens = count_batch(inputs)
            if not samples:
                samples, tokens = count_batch(named)
            reader = FORWARD_BEGINS if training else FORWARD_HELD_OUT
            self.hot.mark((reader, now, None, number, samples, tokens))

    def parallel_ends(self, _result: object, arguments: tuple[Any, ...]) -> None:
        if self.parallelism.forward_ends(arguments[0]):
            self.record(Account.forward_ends)

    def parallel_fails(self) -> None:
        self.parallelism.forward_fails()
        self.record(Account.phase_fails)

    # --- synchronisations --------------------------------------------------------------------------------------

    def synchronisation_begins(self, _arguments: object, _named: object) -> None:
        self._sync_depth += 1
        if self._sync_depth == 1:
            self.record(Account.synchronisation_begins)

    def barrier_passed(self, _result: object, _arguments: object) -> None:
        self._synchronised(SYNC_COLLECTIVE, 0)

    def messages_exchanged(self, _arguments: object, _named: object) -> None:
        """Count a message from one rank to another."""
        self.apart.exchanged(inf)

    def synchronisation_fails(self) -> None:
        self._sync_depth = 0
        self.record(Account.synchronisation_was_none)

    def _synchronised(self, kind: int, payload_bytes: int) -> None:
        self._sync_depth -= 1
        if self._sync_depth == 0:
            self.record(Account.synchronised, kind, payload_bytes)

    def buffers_synchronised(self, _result: object, arguments: tuple[Any, ...]) -> None:
        self._synchronised(SYNC_BUFFERS, self.replicas.replica_of(arguments[0]).buffer_bytes)

    def collective_done(self, result: object, arguments: tuple[Any, ...]) -> None:
        self.apart.collective(result, arguments, inside=self._sync_depth > 1)
        if hasattr(result, "wait"):
            self._sync_depth -= 1  # An asynchronous collective blocks nobody.
            if self._sync_depth == 0:
                self.record(Account.synchronisation_was_none)
            return
        payload = arguments[0] if arguments and isinstance(arguments[0], torch.Tensor) else None
        self._synchronised(SYNC_COLLECTIVE, 0 if payload is None else payload.numel() * payload.element_size())

    def loss_scaled(self, scaled: object, arguments: tuple[Any, ...]) -> None:
        """Remember the loss from which GradScaler made `scaled`, on which the script will call backward."""
        self.hot.loss.remember_scaled(scaled, arguments[1] if len(arguments) > 1 else None)

    def collecting(self, phase: str, _info: dict[str, int]) -> None:
        """Time garbage collections, as a callback of gc. A collection on any thread stops the training thread too."""
        now = monotonic_ns()
        if phase == "start":
            self._gc_began = now
        elif self.listening:
            self.hot.note((Account.collected, now, None, now - self._gc_began, None, None))
