"""Follows passes over DataLoaders: which passes train, and which repeat the order or the worker seeds of the last pass.

A pass is examined when its first batch is requested, because its sampler has its epoch by then. Only torch's own
samplers are examined: a class of the script may do anything with an epoch or a seed.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from ddpmon.messages.setup import DISTRIBUTED_SAMPLER, MAX_LOADERS, MAX_REPEATS, SEED_VARIES, Loader
from ddpmon.messages.vocabulary import MAX_US

PASSES = 16
"""Number of passes to remember, since loaders may be read alternately or abandoned before their end."""


class _Pass:
    """One pass over a DataLoader. `__init__` reads the seed and the epoch; `described` reads the other facts later."""

    __slots__ = (
        *("again", "dataset", "epoch", "index_sampler", "iterator", "loader", "repeats", "seed", "seed_repeats"),
        *("seed_varies", "updates", "worker_seed", "workers"),
    )

    def __init__(self, iterator: Any) -> None:
        self.dataset = id(iterator._dataset)
        self.iterator = weakref.ref(iterator)
        self.loader: Loader | None = None
        """Description of the loader; None until it is read."""
        self.index_sampler = index = iterator._index_sampler
        """The sampler; None once the loader is described, because the sampler keeps the dataset alive."""
        self.workers: list[Any] = getattr(iterator, "_workers", _NO_WORKERS)
        self.worker_seed = iterator._base_seed if self.workers and not iterator._persistent_workers else None
        """Seed of new workers; None if there are no workers or they are persistent."""
        sampler = index.sampler if type(index) is BatchSampler else index
        self.seed = self.epoch = None
        """Seed and epoch from which a shuffling DistributedSampler makes its order; None for any other sampler."""
        if type(sampler) is DistributedSampler and sampler.shuffle:
            self.seed, self.epoch = sampler.seed, sampler.epoch
        self.updates = self.repeats = self.seed_repeats = 0
        """`updates`: number of optimizer updates while this pass was the current one. `Loader` describes the others."""
        self.seed_varies = self.again = False
        """`again` is True if an earlier pass over the same dataset reached its end."""

    def compare_with_last(self, before: _Pass) -> None:
        """Compare this pass with the last pass over the same dataset that trained and reached its end."""
        self.again = True
        self.seed_varies = before.seed_varies or before.seed != self.seed
        if self.seed is not None and (self.seed, self.epoch) == (before.seed, before.epoch):
            self.repeats = min(MAX_REPEATS, before.repeats + 1)
        if self.worker_seed is not None and self.worker_seed == before.worker_seed:
            self.seed_repeats = min(MAX_REPEATS, before.seed_repeats + 1)

    def described(self) -> Loader:
        """Return the description of the loader. Too slow for the training thread."""
        if self.loader is None:
            loader = Loader(len(self.workers), repeats=self.repeats, seed_repeats=self.seed_repeats, again=self.again)
            loader.persistent = bool(self.workers) and self.worker_seed is None
            with contextlib.suppress(Exception):  # Objects of the script's own classes may raise.
                _describe(loader, self.index_sampler)
            if self.seed_varies:
                loader.seed = SEED_VARIES
            self.loader, self.index_sampler = loader, None
        return self.loader


_NO_WORKERS: list[Any] = []


class LoaderPasses:
    """Records passes on the training thread. Other threads may call `training_loaders` and `worker_pids`."""

    def __init__(self) -> None:
        self.begun = 0
        """Number of passes so far."""
        self._passes: dict[int, _Pass] = {}
        """Passes by the id of their iterator."""
        self._latest: dict[int, _Pass] = {}
        """Latest passes by the id of their dataset."""
        self._finished: dict[int, _Pass] = {}
        """Latest passes that trained and reached their end, by the id of their dataset."""
        self._current: _Pass | None = None
        self._updates_before = 0

    def read_from(self, iterator: Any, updates: int, *, begins: bool) -> None:
        """Record that the script now reads from another iterator.

        Args:
            iterator: The iterator.
            updates: Number of updates of models so far.
            begins: True if the iterator begins a new pass.

        """
        self._count(updates)
        current = None if begins else self._passes.get(id(iterator))
        if current is None:
            try:
                current = _Pass(iterator)
            except AttributeError:  # This is another version of torch.
                self._current = None
                return
            self._begin(id(iterator), current)
        self._current = current

    def end_pass(self, updates: int) -> None:
        """Record that the current iterator has no more batches."""
        self._count(updates)
        current = self._current
        if current is not None and current.updates:
            self._finished[current.dataset] = current
            _forget_oldest(self._finished)

    def _begin(self, key: int, new: _Pass) -> None:
        self.begun += 1
        before = self._finished.get(new.dataset)
        if before is not None:
            new.compare_with_last(before)
        for passes, place in ((self._passes, key), (self._latest, new.dataset)):
            passes.pop(place, None)
            passes[place] = new
            _forget_oldest(passes)

    def _count(self, updates: int) -> None:
        if self._current is not None:
            self._current.updates += updates - self._updates_before
        self._updates_before = updates

    def training_loaders(self, updates: int) -> list[Loader]:
        """Return the DataLoaders whose batches were followed by updates. updates: number of updates so far."""
        current, since = self._current, self._updates_before
        training = [
            one
            for one in list(self._latest.values())
            if one.updates or (one is current and updates > since) or one.dataset in self._finished
        ]
        return [one.described() for one in training[-MAX_LOADERS:]]

    def worker_pids(self) -> list[int]:
        """Return the pids of the workers of all DataLoader iterators that still exist."""
        alive = [one for one in list(self._passes.values()) if one.iterator() is not None]
        return [worker.pid for one in alive for worker in one.workers if worker.pid]

    def awaited_pid(self) -> int:
        """Return the pid of the worker that prepares the next batch; 0 if there is none, or it is unknown."""
        current = self._current
        iterator = None if current is None else current.iterator()
        try:
            number = iterator._task_info[iterator._rcvd_idx][0]  # type: ignore[union-attr]
            return int(iterator._workers[number].pid)  # type: ignore[union-attr]
        except Exception:  # No batch is requested, or this version of torch has other attributes.
            return 0


def _forget_oldest(passes: dict[int, _Pass]) -> None:
    if len(passes) > PASSES:
        del passes[next(iter(passes))]


def _describe(loader: Loader, index: Any) -> None:
    """Read from torch's own samplers how they order batches."""
    sampler = index.sampler if type(index) is BatchSampler else index
    if type(sampler) in {DistributedSampler, RandomSampler, SequentialSampler}:
        loader.batches = len(index)
    if type(sampler) is DistributedSampler:
        loader.replicas, loader.rank = int(sampler.num_replicas), int(sampler.rank)
        loader.samples, loader.shuffle = int(sampler.total_size), bool(sampler.shuffle)
        loader.seed, loader.sampler = int(sampler.seed) % MAX_US, DISTRIBUTED_SAMPLER
