"""Train with each alternative to DDP for a few steps: `sharded.py NAME… --save PATH --late RANK --steps N`.

The late rank takes 80 ms longer for each batch. The weights are saved per rank.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import ddpmon

BATCH = 8


class Block(nn.Module):
    def __init__(self, recomputes=False):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
        self.recomputes = recomputes

    def forward(self, x):
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.recomputes else self.inner(x))


class Slow(Dataset):
    def __init__(self, late):
        self.late = late
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.x = torch.randn(4096, 32, generator=generator)

    def __getitem__(self, index):
        if self.late and index % BATCH == 0:
            time.sleep(0.08)
        return self.x[index]

    def __len__(self):
        return len(self.x)


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def fsdp2(recomputes=False, root=True):
    model = nn.Sequential(Block(recomputes), Block(recomputes), nn.Linear(32, 4))
    for block in list(model)[:2]:
        fully_shard(block, mesh=mesh())
    return fully_shard(model, mesh=mesh()) if root else model


def recomputed():
    return fsdp2(recomputes=True)


def blocks():
    """Each block is sharded alone; what is around them is on every rank."""
    return fsdp2(root=False)


def fsdp():
    around = {"device_id": torch.device("cpu"), "use_orig_params": True}
    inner = FullyShardedDataParallel(Block(), **around)
    return FullyShardedDataParallel(nn.Sequential(Block(), inner, nn.Linear(32, 4)), **around)


def tensor_parallel():
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    return parallelize_module(model, mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ways", nargs="+")
    parser.add_argument("--save")
    parser.add_argument("--late", type=int)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Slow(rank == options.late)
    for way in options.ways:
        torch.manual_seed(0)
        model = globals()[way]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        ddpmon.log(way=options.ways.index(way))
        for number, x in enumerate(DataLoader(data, batch_size=BATCH)):
            if number == options.steps:
                break
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if options.save:
            own = [getattr(p, "_local_tensor", p).detach().clone() for p in model.parameters()]
            torch.save(own, f"{options.save}.{way}.{rank}")
        dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
