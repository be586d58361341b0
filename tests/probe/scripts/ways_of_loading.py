"""Ways of loading: DataLoaders of all kinds, and all kinds of batches."""

import dataclasses
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter
from ways_common import BATCH, STEPS, batches, net, train, way


class Stream(IterableDataset):
    """Batches without a length, each worker its part."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(torch.utils.data.get_worker_info().id)
        for _ in range(STEPS * BATCH // 2):
            yield torch.randn(16, generator=generator), 1


@way
def iterable():
    return train(DDP(net()), data=DataLoader(Stream(), batch_size=BATCH, num_workers=2))


class Items(Dataset):
    """Items with a length."""

    def __init__(self, kind="tuple"):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(STEPS * BATCH // 2, 16, generator=generator)
        self.kind = kind

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": index % 4} if self.kind == "dict" else (self.x[index], index % 4)


@way
def loaders():
    """Forked, spawned and persistent workers, one after the other.

    A spawned worker imports torch, four seconds of a core: only a rank that is watched has one. A forked worker brings
    the same batches.
    """
    model = DDP(net())
    how = "spawn" if "DDPMON_SOCKET" in os.environ and dist.get_rank() == 1 else "fork"
    for options in (
        {"multiprocessing_context": "fork", "num_workers": 2},
        {"multiprocessing_context": how, "num_workers": 1, "persistent_workers": True},
        {"multiprocessing_context": "fork", "num_workers": 2, "persistent_workers": True},
    ):
        loader = DataLoader(Items(), batch_size=BATCH, **options)
        for _ in range(2):
            train(model, data=loader)
    return model


def slow_start(_worker):
    time.sleep(0.2)


@way
def workers_each_epoch():
    """Workers take their time at each epoch; an evaluation with workers of its own and a checkpoint lie between."""
    model = DDP(net())
    options = {"batch_size": BATCH, "num_workers": 1, "worker_init_fn": slow_start, "multiprocessing_context": "fork"}
    training, held_out = DataLoader(Items(), **options), DataLoader(Items(), **options)
    for evaluated in (model.module, model, model):
        train(model, data=training)
        model.eval()
        with torch.no_grad():
            for x, _ in held_out:
                evaluated(x)
        model.train()
        torch.save(model.state_dict(), os.devnull)
    return model


class OwnIterator(_BaseDataLoaderIter):
    """Loads in its own way, as torchdata's iterators do; a batch takes 10 ms, so that it shows."""

    def __init__(self, loader):
        super().__init__(loader)
        self.dataset = loader.dataset

    def _next_data(self):
        rows = self._next_index()
        time.sleep(0.01)
        return default_collate([self.dataset[row] for row in rows])


class OwnLoader(DataLoader):
    def _get_iterator(self):
        return OwnIterator(self)


@way
def own_iterator():
    model = DDP(net())
    for _ in range(2):
        train(model, data=OwnLoader(Items(), batch_size=BATCH))
    return model


@dataclasses.dataclass
class Pair:
    """A batch with names."""

    x: torch.Tensor
    y: torch.Tensor


class TakesAnything(nn.Module):
    """A model that is given the whole batch."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, batch):
        if isinstance(batch, Pair):
            return self.net(batch.x)
        return self.net(batch["x"] if isinstance(batch, dict) else batch[0])


@way
def batch_kinds():
    """Dicts, tuples and dataclasses handed to the model whole."""
    model = DDP(TakesAnything())
    train(model, data=DataLoader(Items("dict"), batch_size=BATCH), forward=lambda b: (b, b["y"]))
    train(model, data=DataLoader(Items(), batch_size=BATCH), forward=lambda b: (b, b[1]))
    return train(model, data=(Pair(x, y) for x, y in batches()), forward=lambda b: (b, b.y))
