"""Takes digests of the values that replicas should share. All ranks take them after the same backward calls.

A change of the learning rate or the mode may happen on one rank alone. That rank then takes additional digests; the
next digests that all ranks take follow within some steps. `Apart` detects ranks that train separately by mistake,
without DDP or anything else that keeps their weights equal. Digests compare the weights of such ranks too, unless the
ranks exchange as many bytes between two steps as the model has, send messages from rank to rank, or shard their
parameters.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from time import monotonic_ns
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpmon.messages import BATCH_NORM, FEW_WEIGHTS, INPUTS, OTHER_BUFFERS, UNREDUCED, WEIGHTS
from ddpmon.probe.account import Account
from ddpmon.probe.collectives import group_position
from ddpmon.probe.digest import (
    ELEMENTS,
    FIRST_DIGEST_COUNTS,
    INPUT_ELEMENTS,
    INPUT_TENSORS,
    SOON,
    SampledElements,
    is_digest_due,
    next_due,
    sample_elements,
    tensors_in,
    two_parameters,
)
from ddpmon.probe.identity import Identity
from ddpmon.probe.parallelism import MAX_PARAMETERS, Parallelism, is_sharded, parameters_of
from ddpmon.probe.replica import Replica
from ddpmon.probe.script_calls import ScriptCalls


class Apart:
    """Counts the optimizer steps of a rank without DDP, and the bytes that it exchanges between two optimizer steps."""

    def __init__(self, parallelism: Parallelism) -> None:
        self._parallelism = parallelism
        self.updates = 0
        """Number of optimizer steps so far."""
        self._moment = 0
        """Value of `updates` at which `_bytes` began to count."""
        self._bytes = self._most_bytes = 0.0
        """Number of bytes exchanged since the last update, and the largest number between any two updates."""
        self._works = 0
        """Number of asynchronous collectives that have not been waited for yet."""

    def exchanged(self, exchanged_bytes: float) -> None:
        """Count exchanged bytes, except before the first update, because initial weights are broadcast then."""
        if not self.updates:
            return
        if self._moment != self.updates:
            self._moment, self._bytes = self.updates, 0.0
        self._bytes += exchanged_bytes
        self._most_bytes = max(self._most_bytes, self._bytes)

    def collective(self, result: object, args: Sequence[Any], *, inside: bool) -> None:
        """Count the bytes of a collective's arguments, or a wait for an asynchronous collective.

        Args:
            result: Return value of the collective.
            args: Its positional arguments.
            inside: True if another collective calls this one and does the waiting itself.

        """
        payload = args[0] if args else None
        if isinstance(payload, dist.Work):
            if inside:
                return
            self._works -= 1
            self.exchanged(inf if self._works < 0 else 0)
            return
        self._works += hasattr(result, "wait")
        self.exchanged(_bytes(payload))

    def count_update(self, optimizer: Any, optimizers: Iterable[int], world_size: int) -> SampledElements | None:
        """Count an optimizer step; return sampled elements of its parameters if ranks are to be compared now.

        Args:
            optimizer: The optimizer that stepped. Its first step is never compared, because some scripts broadcast
                their weights after it.
            optimizers: Ids of all optimizers.
            world_size: Number of ranks.

        """
        self.updates += 1
        if (
            not is_digest_due(self.updates)
            or self.updates == FIRST_DIGEST_COUNTS[0]
            or world_size < 2
            or self._parallelism.is_wrapped
        ):
            return None
        parameters = list(islice(parameters_of(optimizer), MAX_PARAMETERS))
        size = sum(one.numel() * one.element_size() for one in parameters)
        if self._most_bytes >= size or any(map(is_sharded, parameters)):
            return None
        # Ranks that hold different parts of a model differ in the shapes of their parameters.
        shapes = zlib.crc32(repr([tuple(one.shape) for one in parameters]).encode())
        number = list(optimizers).index(id(optimizer))
        return sample_elements(parameters, number, f"shapes {shapes:08x}", 0, self.updates)


def _bytes(payload: Any) -> float:
    """Return the bytes of a collective's tensors; inf if unknown (None). Objects are sent by nested collectives."""
    if payload is None:
        return inf
    tensors = payload if isinstance(payload, list | tuple) else [payload]
    return float(sum(one.numel() * one.element_size() for one in tensors if isinstance(one, torch.Tensor)))


class Comparisons(ScriptCalls):
    """The part of the probe that hashes weights, inputs and buffers, so that the hub can compare them between ranks."""

    def reset(self, identity: Identity) -> None:
        """Reset all state, as in a new process."""
        super().reset(identity)
        self._synchronised_backwards = 0
        self._digests_at = FIRST_DIGEST_COUNTS[0]
        """Number of synchronised backward calls after which the next digests are due."""
        self._digested_at = 0
        """Number of synchronised backward calls after which digests were last due."""
        self.apart = Apart(self.parallelism)
        self._unsynchronised = 0
        """Number of optimizer steps on gradients that no reducer was prepared for, although there is a DDP model."""

    def digests_due(self) -> None:
        """Schedule a digest of each model before its next forward in the same mode. Every rank calls this together.

        A forward in the other mode may happen on one rank alone and use other weights, as in an evaluation of averaged
        weights.
        """
        self._digested_at = self._synchronised_backwards
        self._digests_at = next_due(self._digested_at)
        for replica in list(self.replicas.values()):
            replica.digest_in = replica.is_training
            replica.strays = [one for one in replica.others if one.requires_grad and one.grad is not None]
            if replica.search is not None and (model := replica.model()) is not None:
                replica.search.start_count(model.reducer)

    def digest_soon(self) -> None:
        """Schedule digests after the next backward: the mode or the learning rate changed, perhaps on one rank only."""
        if self._synchronised_backwards - self._digested_at >= SOON:
            self._digests_at = self._synchronised_backwards + 1

    def take_digests(self, replica: Replica, model: DistributedDataParallel, inputs: Iterable[Any]) -> None:
        """Take the digests that are due before a forward, including one of its inputs."""
        place = group_position(model.process_group)
        if not is_digest_due(self._digested_at):
            self._digest(replica, place, two_parameters(replica.parameters), FEW_WEIGHTS)
        else:
            self._digest(replica, place, replica.parameters)
            tensors = list(islice(tensors_in(inputs), INPUT_TENSORS))
            self._digest(replica, place, [one for one in tensors if one.device == tensors[0].device], INPUTS)
            statistics, others = replica.own_buffers()
            self._digest(replica, place, statistics, BATCH_NORM)
            self._digest(replica, place, others, OTHER_BUFFERS)
        if replica.strays:
            self._digest(replica, place, replica.strays, UNREDUCED)

    def _digest(
        self, replica: Replica, place: tuple[str, int], tensors: Sequence[Any], of: int = WEIGHTS, updates: int = 0
    ) -> None:
        sampled = None
        with contextlib.suppress(RuntimeError):  # Inputs and buffers without a storage raise.
            sampled = sample_elements(
                tensors, replica.number, *place, updates, INPUT_ELEMENTS if of == INPUTS else ELEMENTS
            )
        if sampled is not None:
            sampled.of = of
            self.hot.note((Account.digest_taken, monotonic_ns(), None, sampled, None, None))

    def update_apart(self, optimizer: Any) -> None:
        """Handle an optimizer step in a process without a DDP model."""
        sampled = None
        with contextlib.suppress(RuntimeError):  # Sparse parameters raise, and a tensor class of the script may.
            sampled = self.apart.count_update(optimizer, self.hot.optimizers, self.identity.facts.world_size)
        if sampled is not None:
            self.hot.note((Account.digest_taken, monotonic_ns(), None, sampled, None, None))

    def update_unsynchronised(self) -> None:
        self._unsynchronised += 1
        if is_digest_due(self._unsynchronised):
            for replica in list(self.replicas.values()):
                if (model := replica.model()) is not None:
                    place = group_position(model.process_group)
                    self._digest(replica, place, replica.parameters, updates=self._unsynchronised)
