"""Ways of loading: DataLoaders of all kinds."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter
from ways_common import BATCH, STEPS, net, train, way


class Items(Dataset):
    """Items with a length."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(STEPS * BATCH // 2, 16, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], index % 4


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
