"""Finds the models, optimizers and DataLoader iterators of a process that was training before ddpmon attached."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import BatchSampler, DistributedSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ddpmon.probe.listener import Listener
from ddpmon.probe.parallel_wrappers import WRAPPERS


class Existing(NamedTuple):
    """The objects that were found. On most scripts their order is the same on all ranks."""

    models: list[Any]
    """Models that are wrapped in DDP."""
    optimizers: list[Any]
    iterators: list[Any]
    """Iterators of DataLoaders."""
    wrappers: list[str]
    """Kinds of the other parallel wrappers."""


def find_tracked() -> Existing:
    """Find the models, iterators and wrappers that the garbage collector tracks. Takes 20 ms per million objects."""
    others = [owner for one in WRAPPERS if (owner := _imported(one.modules, one.name)) is not None]
    kinds = DistributedDataParallel, Optimizer, _BaseDataLoaderIter, *others
    wanted = {subclass for kind in kinds for subclass in _subclasses(kind)}
    # Compare types only: `isinstance` would ask objects for their `__class__`, and proxies run their own code for that.
    found = [one for one in gc.get_objects() if type(one) in wanted]
    models = [one for one in found if issubclass(type(one), DistributedDataParallel) and "reducer" in vars(one)]
    # An optimizer that wraps another one lacks this attribute, and its steps are the steps of the wrapped optimizer.
    optimizers = [one for one in found if issubclass(type(one), Optimizer) and "_zero_grad_profile_name" in vars(one)]
    return Existing(
        sorted(models, key=_size),
        optimizers,
        [one for one in found if issubclass(type(one), _BaseDataLoaderIter)],
        [one.kind for one in WRAPPERS if any(type(each).__name__ == one.name for each in found)],
    )


def register_tracked(listener: Listener, existing: Existing) -> None:
    """Register the objects that were found with a listener, as if it had seen each of them being made."""
    for model in existing.models:
        listener.model_found(model)
    for optimizer in existing.optimizers:
        listener.hear_of(optimizer)
    epochs = {epoch for one in existing.iterators if (epoch := _epoch(one)) is not None}
    if len(epochs) == 1 and (epoch := epochs.pop()) != 1:  # A first epoch of 1 may come from a loop that counts from 1.
        listener.loops.set_epoch(epoch)
    if "torch._dynamo" in sys.modules:
        listener.pauses.compiler_there(None, None)


def _imported(modules: tuple[str, ...], name: str) -> type | None:
    owners = (getattr(sys.modules.get(module), name, None) for module in modules)
    return next((one for one in owners if isinstance(one, type)), None)


def _subclasses(kind: type) -> Iterator[type]:
    yield kind
    subclasses: list[type] = type.__subclasses__(kind)
    for subclass in subclasses:
        yield from _subclasses(subclass)


def _size(model: Any) -> tuple[str, int]:
    return type(model.module).__name__, sum(parameter.numel() for parameter in model.parameters())


def _epoch(iterator: Any) -> int | None:
    """Return the epoch that a DataLoader's DistributedSampler was given; None if it has another sampler."""
    sampler: Any = getattr(iterator, "_index_sampler", None)
    if type(sampler) is BatchSampler:
        sampler = sampler.sampler
    return sampler.epoch if type(sampler) is DistributedSampler else None
