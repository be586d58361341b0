"""Handles the calls that torch makes in every step, and writes a note of each with its time and a few arguments.

`account` reads the notes, on the background thread once there is one. This module does at once only what cannot wait:
it reads which gradients the reducer has just reduced, reads the loss before the script changes it, and samples a model
at the step that needs it. Calls into C++ leave the CPU caches cold for this code, so every line costs time.
"""

from __future__ import annotations

import weakref
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from torch import is_grad_enabled

from ddpmon.messages.step_counter import UPDATES
from ddpmon.probe.account import (
    BACKWARD_BEGINS,
    BACKWARD_ENDS,
    FETCH_BEGINS,
    FETCH_ENDS,
    FORWARD_BEGINS,
    FORWARD_ENDS,
    FORWARD_HELD_OUT,
    OPTIMIZER_BEGINS,
    OPTIMIZER_ENDS,
    Account,
)
from ddpmon.probe.batch_size import count_batch, links_nodes
from ddpmon.probe.collectives import group_position, last_sequence_numbers
from ddpmon.probe.comparisons import Comparisons
from ddpmon.probe.digest import next_due
from ddpmon.probe.identity import Identity
from ddpmon.probe.interception import passed_argument
from ddpmon.probe.loader_passes import LoaderPasses
from ddpmon.probe.parallelism import parameters_of
from ddpmon.probe.pauses import Pauses
from ddpmon.probe.replica import Replica

if TYPE_CHECKING:
    from ddpmon.probe.buckets import Buckets


RATE_JUMP = 1.25
"""Smallest factor of a change that counts as a jump of the learning rate. A schedule changes it less per step."""


class EveryStep(Comparisons):
    """The part of a listener that DDP, the DataLoader, backward and optimizers call in every step."""

    def __init__(self) -> None:
        self.buckets: Buckets | None = None
        """Records every bucket, if that was requested; else None."""
        super().__init__()
        self.pauses = Pauses(self)

    def reset(self, identity: Identity) -> None:
        """Reset all state, as in a new process."""
        super().reset(identity)
        self.pauses.reset()
        self.hot.before_forward = self.buckets is not None
        self.loader: tuple[object, object] = (None, None)
        """Number of workers of the DataLoader that was used last, and whether it pins its batches."""
        self.passes = LoaderPasses()
        self._optimizer_ends: dict[int, weakref.finalize[Any, Any]] = {}
        """Finalizers that note when each optimizer is freed, by its id."""
        self.joined = False
        """True if this rank has ever run out of data under Join."""
        self._begun_passes: dict[int, bool] = {}
        """By id of each iterator that began a pass and has not returned a batch yet: True if its workers are new."""

    # --- data --------------------------------------------------------------------------------------------------

    def iterator_made(self, _result: object, arguments: tuple[Any, ...]) -> None:
        """Record that a DataLoader created an iterator; its workers, if it has any, are new."""
        iterator = arguments[0]
        self.hot.fetching = 0  # The iterator may have the id of a freed one.
        self._begun_passes[id(iterator)] = bool(getattr(iterator, "_num_workers", 0))

    def workers_started(self, result: object, arguments: tuple[Any, ...]) -> None:
        """Note that a DataLoader has started its worker processes."""
        self.iterator_made(result, arguments)
        self.record(Account.pause_ends)

    def iterator_reset(self, _result: object, arguments: tuple[Any, ...]) -> None:
        """Note that an iterator begins another pass with the same workers."""
        self.hot.fetching = 0
        self._begun_passes[id(arguments[0])] = False

    def fetch_begins(self, arguments: tuple[Any, ...], _named: object) -> None:
        hot = self.hot
        hot.mark((FETCH_BEGINS, monotonic_ns(), None, None, None, None))
        if id(arguments[0]) != hot.fetching:
            self._switch_iterator(arguments[0])

    def _switch_iterator(self, iterator: Any) -> None:
        """Record that the script now reads from another DataLoader iterator."""
        self.hot.fetching = id(iterator)
        self.loader = (getattr(iterator, "_num_workers", None), getattr(iterator, "_pin_memory", None))
        new_workers = self._begun_passes.pop(id(iterator), None)
        self.passes.read_from(iterator, self.hot.updates[UPDATES], begins=new_workers is not None)
        if new_workers:
            self.record(Account.workers_awaited)

    def fetch_ends(self, batch: object, arguments: tuple[Any, ...]) -> None:
        now = monotonic_ns()
        samples, tokens = count_batch(batch)
        self.hot.mark((FETCH_ENDS, now, None, id(arguments[0]), samples, tokens))

    def fetch_fails(self) -> None:
        """Note that the loader has no more batches (StopIteration), or raised."""
        self.hot.depth = 0
        self.passes.end_pass(self.hot.updates[UPDATES])
        self.record(Account.fetch_fails, self.hot.fetching)

    def backward_fails(self) -> None:
        """Note that a backward raised, so that its phase ends."""
        if self._leave_backward():
            self.record(Account.backward_fails)

    # --- forward -----------------------------------------------------------------------------------------------

    def forward_begins(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note that a forward of a DDP model begins.

        Args:
            arguments: The model and its positional inputs.
            named: Its inputs by keyword.

        """
        hot = self.hot
        model = arguments[0]
        replica = self.replicas.get(id(model)) or self.replicas.replica_of(model)
        training = replica.inner.get("training")
        if training is None:
            training = replica.is_training
        if not is_grad_enabled():
            hot.mark((Account.forward_without_gradients, monotonic_ns(), None, replica.number, not training, None))
            return
        replica.held_out = not training
        if training == replica.digest_in or hot.before_forward:
            self._before_forward(replica, arguments, named, training=training)
        now = monotonic_ns()
        samples, tokens = count_batch(arguments[1]) if len(arguments) > 1 else (0, 0)
        if not samples:
            samples, tokens = count_batch(arguments[2:])
            if not samples and named:
                samples, tokens = count_batch(named)
        elif len(arguments) > 2 and links_nodes(samples, arguments[2]):
            samples = tokens = 0
        reader = FORWARD_BEGINS if training else FORWARD_HELD_OUT
        hot.mark((reader, now, None, replica.number, samples, tokens))

    def _before_forward(
        self, replica: Replica, arguments: tuple[Any, ...], named: dict[str, Any], *, training: bool
    ) -> None:
        model = arguments[0]
        if self.buckets is not None:
            self.buckets.register_hook(model)
        if self.hot.events is not None:
            replica.mark_gradients()
        if training == replica.digest_in:
            replica.digest_in = None
            self.take_digests(replica, model, (arguments[1:], named))

    def forward_ends(self, _result: object, _arguments: object) -> None:
        self.hot.mark((FORWARD_ENDS, monotonic_ns(), None, None, None, None))

    def backward_expected(self, _result: object, arguments: tuple[Any, ...]) -> None:
        """Remember that DDP prepared its reducer, which reduces the gradients of the next backward.

        DDP prepares the reducer itself at the end of a forward; some scripts and frameworks prepare it later. The
        reducer measures from this moment the times at which gradients are ready.
        """
        replica = self.replicas.by_reducer.get(id(arguments[0]))
        if replica is None or replica.stats is None:
            replica = self.replicas.of_reducer(arguments[0])
        if replica is not None:
            replica.expected_at = monotonic_ns()
            if not replica.expected:
                replica.expected = True
                self.hot.expecting.append(replica)
            if self.hot.depth:
                self.hot.expects_inside = True

    # --- backward ----------------------------------------------------------------------------------------------

    def backward_begins(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note that a backward begins. arguments: torch's engine, outputs, … named: with accumulate_grad."""
        hot = self.hot
        hot.depth += 1
        if hot.depth > 1:
            # Activation checkpointing recomputes here too. Only a backward for which DDP prepared its reducer counts.
            if hot.expects_inside:
                hot.inner.append(hot.depth)
                hot.mark((BACKWARD_BEGINS, monotonic_ns(), None, named.get("accumulate_grad", False), False, None))
            return
        if self.buckets is not None:
            self.buckets.backward_begins()
        now = monotonic_ns()
        outputs = arguments[0]
        accumulates = named.get("accumulate_grad", False)
        single = len(outputs) == 1
        loss = hot.loss.read_output(outputs[0]) if accumulates and single else None
        hot.mark((BACKWARD_BEGINS, now, None, accumulates, single, loss))

    def backward_ends(self, _result: object, _arguments: object) -> None:
        hot = self.hot
        if hot.depth > 1:
            if self._leave_backward():
                self._several_end(monotonic_ns())
            return
        hot.depth = 0
        now = monotonic_ns()
        if len(hot.expecting) != 1:
            self._several_end(now)
            return
        reduction = hot.expecting[0].take_reduction()
        if reduction is None:
            hot.unreduced = True
            hot.mark((BACKWARD_ENDS, now, None, (), None, None))
            return
        hot.unreduced = False
        hot.expecting = []
        hot.mark((BACKWARD_ENDS, now, None, (reduction,), None, None))
        self._gradients_reduced()

    def _leave_backward(self) -> bool:
        """Count a backward as ended; return whether its start was noted."""
        hot = self.hot
        depth = hot.depth
        hot.depth = max(0, depth - 1)
        if depth > 1 and not (hot.inner and hot.inner[-1] == depth):
            return False
        if depth > 1:
            hot.inner.pop()
        return True

    def _several_end(self, now: int) -> None:
        """Note the end of a backward at time `now`, and the reductions of any number of models in it."""
        hot = self.hot
        reduced_inside, hot.reduced_inside = hot.reduced_inside, hot.reduced_inside and hot.depth > 0
        reductions = tuple(one for replica in hot.expecting if (one := replica.take_reduction()) is not None)
        hot.unreduced = not reductions and not reduced_inside
        hot.mark((BACKWARD_ENDS, now, None, reductions, None, None))
        if reductions:
            hot.expecting = [replica for replica in hot.expecting if replica.expected and replica.stats is not None]
            hot.reduced_inside = hot.depth > 0
            self._gradients_reduced()
        if not hot.depth:
            hot.expects_inside = False

    def note_joined_sync(self, _result: object, _arguments: object) -> None:
        """Note that this rank, which has no data left under Join, joined the other ranks' gradient synchronisation."""
        self.joined = True
        self.record(Account.count_joined_step)
        self._gradients_reduced()

    def _gradients_reduced(self) -> None:
        """Count a backward that reduced gradients, and schedule digests."""
        self.hot.updates[UPDATES] += 1
        self._synchronised_backwards += 1
        if self.hot.start is not None:
            self._synchronised_backwards = self._count_from_start(self._synchronised_backwards, whole=False)
            self._digests_at = next_due(self._synchronised_backwards)
        elif self._synchronised_backwards == self._digests_at:
            self.digests_due()
        if self.hot.tells:
            self.record(Account.end_part, self._issued(), self._synchronised_backwards)

    def _count_from_start(self, count: int, *, whole: bool) -> int:
        """Record the end of a part of a step, until the ranks have agreed on the first step that counts.

        Args:
            count: Number of synchronisations, or of updates, so far.
            whole: True if the part was the last one of its step.

        Returns:
            The number of synchronisations or updates since steps began to count; `count` if steps do not count yet.

        """
        start = self.hot.start
        if start is None:
            return count
        if start.begun_at is not None:
            self.hot.start = None
            self.hot.tells = start.machines and self.identity.facts.rank == 0
            return count - start.begun_at
        issued_so_far = self._issued()
        if start.first is None:
            self.hold()
            start.first = issued_so_far
        self.record(Account.end_part, issued_so_far, count, whole)
        return count

    def _issued(self) -> int:
        """Return the number of collectives so far, which is the same on all ranks at the same place in the script."""
        model = next((model for one in list(self.replicas.values()) if (model := one.model()) is not None), None)
        return sum(last_sequence_numbers().values()) if model is None else group_position(model.process_group)[1]

    # --- optimizer ---------------------------------------------------------------------------------------------

    def hear_of(self, optimizer: Any) -> None:
        """Register an optimizer, most often when it is made."""
        optimizers = self.hot.optimizers
        if id(optimizer) not in optimizers:
            optimizers[id(optimizer)] = ""
            self.pauses.optimizer_made(optimizer)
            self.record(Account.optimizer_made, id(optimizer))
            end = weakref.finalize(optimizer, self._optimizer_gone, optimizers, id(optimizer))
            end.atexit = False
            self._optimizer_ends[id(optimizer)] = end

    def _optimizer_gone(self, optimizers: dict[int, str], key: int) -> None:
        """Forget an optimizer that was freed. Runs on whichever thread frees it."""
        optimizers.pop(key, None)
        self._optimizer_ends.pop(key, None)
        self.hot.rates.pop(key, None)
        if self.listening and optimizers is self.hot.optimizers:  # Otherwise it belongs to the parent of this fork.
            self.hot.note((Account.optimizer_gone, monotonic_ns(), None, key, None, None))

    def let_go(self) -> None:
        """Stop listening for good, detach all finalizers, and remove the hooks from gradients."""
        self.hot.thread = 0
        for end in list(self._optimizer_ends.values()):
            end.detach()
        for replica in list(self.replicas.values()):
            replica.unmark_gradients()

    def optimizer_begins(self, optimizer: Any) -> None:
        hot = self.hot
        key = id(optimizer)
        if not hot.optimizers.get(key) or hot.depth or self.parallelism.unsure:
            self._examine(optimizer)
            if hot.depth:
                self.record(Account.optimizer_in_backward, key)
                return
        rate = optimizer.param_groups[0].get("lr")
        if isinstance(rate, (float, int)) and (rate != hot.rates.get(key) or not rate):
            rate = self._rate_changes(optimizer)
        hot.mark((OPTIMIZER_BEGINS, monotonic_ns(), None, key, rate, None))

    def _rate_changes(self, optimizer: Any) -> float:
        """Return the first learning rate of the optimizer's groups that is not 0, because frozen groups may have 0."""
        rates = [group.get("lr") for group in optimizer.param_groups]
        rate = next((float(one) for one in rates if isinstance(one, (float, int)) and one), 0.0)
        before = self.hot.rates.get(id(optimizer), rate)
        self.hot.rates[id(optimizer)] = rate
        if rate != before and not before / RATE_JUMP < rate < before * RATE_JUMP:
            self.digest_soon()
        return rate

    def _examine(self, optimizer: Any) -> None:
        """Register an optimizer if it is new, and note which model it updates."""
        self.start()
        self.hear_of(optimizer)
        self.parallelism.handle_optimizer(optimizer)
        optimizers = self.hot.optimizers
        if not optimizers[id(optimizer)] and not self.hot.depth:  # Read the name now, while the model exists.
            first = next(parameters_of(optimizer), None)
            shared = len(optimizers) > len(self.replicas)
            name = optimizers[id(optimizer)] = self.replicas.name_of(first, set(optimizers.values()), shared)
            self.record(Account.optimizer_named, id(optimizer), name, self.pauses.ids_sharing_parameters(optimizer))

    def optimizer_ends(self, optimizer: Any) -> None:
        hot = self.hot
        if hot.depth:
            return
        hot.mark((OPTIMIZER_ENDS, monotonic_ns(), None, id(optimizer), bool(self.replicas), hot.unreduced))
        if hot.unreduced:
            hot.unreduced = False
            hot.updates[UPDATES] += 1
            if hot.start is not None:
                self._update_before_start()
            elif self.replicas:
                self.update_unsynchronised()
            else:
                self.update_apart(optimizer)
                if hot.tells:
                    self.record(Account.end_part, self._issued(), self.apart.updates, True)

    def _update_before_start(self) -> None:
        """Count an optimizer step on gradients that were not reduced, while steps may not count yet."""
        if not self.replicas:
            self.apart.updates = self._count_from_start(self.apart.updates + 1, whole=True)
        elif self.account.unsynchronised:  # Otherwise DDP prepared its reducer before the attach.
            self._count_from_start(0, whole=True)

    def scaler_steps(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note GradScaler.step. It consumes the gradients even if it skips the update because they are infinite."""
        optimizer = passed_argument(arguments, named, 1, "optimizer")
        self.hot.note((Account.scaler_steps, monotonic_ns(), None, id(optimizer), None, None))
