"""Notice ranks that train apart without meaning to: no DDP, and nothing else that could keep their weights the same.

After some optimizer steps a few elements of the parameters are taken, as those of DDP's replicas are (`digest`), so
that the hub can compare ranks. They are not where ranks exchange enough to hold the same weights, or are meant to hold
others: as many bytes as the model has between two steps, messages from rank to rank, parameters that are sharded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from typing import Any

import torch
import torch.distributed as dist

from ddpmon.probe.digest import FIRST, SampledElements, due, sample
from ddpmon.probe.parallelism import MAX_PARAMETERS, Parallelism, is_sharded, parameters_of


class Apart:
    """Counts the optimizer steps of a rank without DDP, and what it exchanges with others between two of them."""

    def __init__(self, parallelism: Parallelism) -> None:
        self._parallelism = parallelism
        self.updates = 0
        """Optimizer steps so far."""
        self._moment = 0
        """The update after which bytes are counted."""
        self._bytes = self._most_bytes = 0.0
        """Exchanged since then, and the most that were between any two updates."""
        self._works = 0
        """Asynchronous collectives that were not waited for yet."""

    def exchanged(self, exchanged_bytes: float) -> None:
        """Count what is exchanged. Before the first update it says nothing: initial weights are broadcast."""
        if not self.updates:
            return
        if self._moment != self.updates:
            self._moment, self._bytes = self.updates, 0.0
        self._bytes += exchanged_bytes
        self._most_bytes = max(self._most_bytes, self._bytes)

    def collective(self, result: object, args: Sequence[Any], *, inside: bool) -> None:
        """Count a collective by its arguments, or the wait for one that was counted when it began.

        inside: another one calls it, which waits for its own.
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

    def updated(self, optimizer: Any, optimizers: Iterable[int], world_size: int) -> SampledElements | None:
        """Count an optimizer step; return a few elements of what it updates where ranks are to be compared.

        The first step is left out: some scripts broadcast their weights after it. optimizers: the ids of all.
        """
        self.updates += 1
        if not due(self.updates) or self.updates == FIRST[0] or world_size < 2 or self._parallelism.is_wrapped:
            return None
        parameters = list(islice(parameters_of(optimizer), MAX_PARAMETERS))
        size = sum(one.numel() * one.element_size() for one in parameters)
        if self._most_bytes >= size or any(map(is_sharded, parameters)):
            return None
        # Ranks that hold parts of a model differ in its shapes.
        shapes = zlib.crc32(repr([tuple(one.shape) for one in parameters]).encode())
        number = list(optimizers).index(id(optimizer))
        return sample(parameters, number, f"shapes {shapes:08x}", 0, self.updates)


def _bytes(payload: Any) -> float:
    """Return the size of what a collective is given; objects go in collectives of their own. None: it is not known."""
    if payload is None:
        return inf
    tensors = payload if isinstance(payload, list | tuple) else [payload]
    return float(sum(one.numel() * one.element_size() for one in tensors if isinstance(one, torch.Tensor)))
