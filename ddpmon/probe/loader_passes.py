"""Passes over DataLoaders: which of them train, and whether one has the order, or its workers the seeds, of the last.

A pass is read when its first batch is asked for: its sampler has its epoch then. Samplers are read of torch's own class
alone: what a class of the script's own does with an epoch or a seed is not known.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from ddpmon.messages.setup import DISTRIBUTED_SAMPLER, MAX_LOADERS, MAX_REPEATS, SEED_VARIES, Loader
from ddpmon.messages.vocabulary import MAX_US

PASSES = 16
"""Passes that are remembered: of loaders that are read in turn, and of those that were left before their end."""


class _Pass:
    """One pass over a DataLoader. The training thread notes what changes from pass to pass; the rest is read later."""

    __slots__ = (
        *("again", "dataset", "epoch", "index_sampler", "iterator", "loader", "repeats", "seed", "seed_repeats"),
        *("seed_varies", "updates", "worker_seed", "workers"),
    )

    def __init__(self, iterator: Any) -> None:
        self.dataset = id(iterator._dataset)
        self.iterator = weakref.ref(iterator)
        self.loader: Loader | None = None
        """None: it is not read yet."""
        self.index_sampler = index = iterator._index_sampler
        """Until the loader is read: it leads to the dataset, which is not to be kept."""
        self.workers: list[Any] = getattr(iterator, "_workers", _NO_WORKERS)
        self.worker_seed = iterator._base_seed if self.workers and not iterator._persistent_workers else None
        """The seed of new workers; None: they are none, or are kept."""
        sampler = index.sampler if type(index) is BatchSampler else index
        self.seed = self.epoch = None
        """Seed and epoch that decide the order of a sampler that shuffles; None: it does not, or is none of torch's
        own."""
        if type(sampler) is DistributedSampler and sampler.shuffle:
            self.seed, self.epoch = sampler.seed, sampler.epoch
        self.updates = self.repeats = self.seed_repeats = 0
        """updates: of models while it was the pass that was read last. The others as in `Loader`."""
        self.seed_varies = self.again = False
        """again: an earlier pass over the same dataset came to its end."""

    def follow(self, before: _Pass) -> None:
        """Compare with the last pass over the same dataset that trained and came to its end."""
        self.again = True
        self.seed_varies = before.seed_varies or before.seed != self.seed
        if self.seed is not None and (self.seed, self.epoch) == (before.seed, before.epoch):
            self.repeats = min(MAX_REPEATS, before.repeats + 1)
        if self.worker_seed is not None and self.worker_seed == before.worker_seed:
            self.seed_repeats = min(MAX_REPEATS, before.seed_repeats + 1)

    def described(self) -> Loader:
        """Return what is known of its loader. Not on the training thread."""
        if self.loader is None:
            loader = Loader(len(self.workers), repeats=self.repeats, seed_repeats=self.seed_repeats, again=self.again)
            loader.persistent = bool(self.workers) and self.worker_seed is None
            with contextlib.suppress(Exception):  # values of the script's own
                _describe(loader, self.index_sampler)
            if self.seed_varies:
                loader.seed = SEED_VARIES
            self.loader, self.index_sampler = loader, None
        return self.loader


_NO_WORKERS: list[Any] = []


class LoaderPasses:
    """Takes passes from the training thread; `loaders` and `worker_pids` may be asked on another one."""

    def __init__(self) -> None:
        self.begun = 0
        """Passes so far."""
        self._passes: dict[int, _Pass] = {}
        """Passes by the id of the iterator."""
        self._latest: dict[int, _Pass] = {}
        """Latest passes by the id of the dataset."""
        self._finished: dict[int, _Pass] = {}
        """The same of passes that trained and came to their end."""
        self._current: _Pass | None = None
        self._updates_before = 0

    def read_from(self, iterator: Any, updates: int, *, begins: bool) -> None:
        """Take note that another iterator than before is asked for a batch. updates: of models so far."""
        self._count(updates)
        current = None if begins else self._passes.get(id(iterator))
        if current is None:
            try:
                current = _Pass(iterator)
            except AttributeError:  # another version of torch
                self._current = None
                return
            self._begin(id(iterator), current)
        self._current = current

    def ended(self, updates: int) -> None:
        """Take note that the iterator that was asked last has no more."""
        self._count(updates)
        current = self._current
        if current is not None and current.updates:
            self._finished[current.dataset] = current
            _forget_oldest(self._finished)

    def _begin(self, key: int, new: _Pass) -> None:
        self.begun += 1
        before = self._finished.get(new.dataset)
        if before is not None:
            new.follow(before)
        for passes, place in ((self._passes, key), (self._latest, new.dataset)):
            passes.pop(place, None)
            passes[place] = new
            _forget_oldest(passes)

    def _count(self, updates: int) -> None:
        if self._current is not None:
            self._current.updates += updates - self._updates_before
        self._updates_before = updates

    def loaders(self, updates: int) -> list[Loader]:
        """Return the loaders that train, by their latest passes that did. updates: of models so far."""
        current, since = self._current, self._updates_before
        training = [
            one
            for one in list(self._latest.values())
            if one.updates or (one is current and updates > since) or one.dataset in self._finished
        ]
        return [one.described() for one in training[-MAX_LOADERS:]]

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers of all DataLoaders that can still be read from."""
        alive = [one for one in list(self._passes.values()) if one.iterator() is not None]
        return [worker.pid for one in alive for worker in one.workers if worker.pid]

    def awaited_pid(self) -> int:
        """Return the process id of the worker whose batch comes next; 0: there is none, or it is not known."""
        current = self._current
        iterator = None if current is None else current.iterator()
        try:
            number = iterator._task_info[iterator._rcvd_idx][0]  # type: ignore[union-attr]
            return int(iterator._workers[number].pid)  # type: ignore[union-attr]
        except Exception:  # it asks for no batch, or this version of torch keeps that elsewhere
            return 0


def _forget_oldest(passes: dict[int, _Pass]) -> None:
    if len(passes) > PASSES:
        del passes[next(iter(passes))]


def _describe(loader: Loader, index: Any) -> None:
    """Read what torch's own classes say of the order of batches."""
    sampler = index.sampler if type(index) is BatchSampler else index
    if type(sampler) in {DistributedSampler, RandomSampler, SequentialSampler}:
        loader.batches = len(index)
    if type(sampler) is DistributedSampler:
        loader.replicas, loader.rank = int(sampler.num_replicas), int(sampler.rank)
        loader.samples, loader.shuffle = int(sampler.total_size), bool(sampler.shuffle)
        loader.seed, loader.sampler = int(sampler.seed) % MAX_US, DISTRIBUTED_SAMPLER
