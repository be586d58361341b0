"""Set training up in ways that are sound and in ways that are not: `setups.py` on two ranks.

Each way trains a little, then prints a line: its name, the rank, and the setup as the probe reads it, in JSON.
"""

import contextlib
import faulthandler
import itertools
import os
import time

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from ddpmon.probe import arm
from ddpmon.probe.digest import FIRST_DIGEST_COUNTS
from ddpmon.probe.loader_passes import LoaderPasses
from ddpmon.probe.setup_reader import SetupReader

torch.set_num_threads(1)
dist.init_process_group("gloo")
assert faulthandler.is_enabled()  # the probe has seen to it: a crash prints the line of Python
torch.manual_seed(0)
DATA, HELD_OUT = TensorDataset(torch.randn(48, 4)), TensorDataset(torch.randn(16, 4))
WAYS = []


def way(train):
    WAYS.append(train)
    return train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x, head=True):
        return self.head(self.body(x)) if head else self.body(x)


def step(model, optimizer, x, **how):
    optimizer.zero_grad()
    model(x, **how).square().mean().backward()
    optimizer.step()


def made(net=None, **how):
    model = DDP(net or Net(), **how)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def over(loader, epochs=3, begin=lambda epoch: None):
    """Train and evaluate in each epoch, as most scripts do: the held-out data in the same order each time."""
    model, optimizer = made()
    held_out = DataLoader(HELD_OUT, 4, sampler=DistributedSampler(HELD_OUT))
    for epoch in range(epochs):
        begin(epoch)
        for (x,) in loader:
            step(model, optimizer, x)
        with torch.no_grad():
            for (x,) in held_out:
                model(x)
    return model, optimizer


@way
def sound():
    sampler = DistributedSampler(DATA)
    return over(DataLoader(DATA, 8, sampler=sampler), begin=sampler.set_epoch)


@way
def one_epoch():
    return over(DataLoader(DATA, 8, sampler=DistributedSampler(DATA)), epochs=1)


@way
def not_shuffled():
    return over(DataLoader(DATA, 8, sampler=DistributedSampler(DATA, shuffle=False)))


@way
def sampler_of_its_own():
    class Own(DistributedSampler):
        def __iter__(self):
            self.epoch += 1
            return super().__iter__()

    return over(DataLoader(DATA, 8, sampler=Own(DATA)))


@way
def stream():
    class Stream(IterableDataset):
        def __iter__(self):
            return ((row,) for row in torch.randn(16, 4))

    return over(DataLoader(Stream(), 8))


@way
def first_batch_of_each_loader():
    loader = DataLoader(DATA, 8, sampler=DistributedSampler(DATA))
    model, optimizer = made()
    for _ in range(6):
        step(model, optimizer, next(iter(loader))[0])
    return model, optimizer


@way
def seed_of_each_epoch():
    class Loaders:
        epochs = itertools.count()

        def __iter__(self):
            return iter(DataLoader(DATA, 8, sampler=DistributedSampler(DATA, seed=next(self.epochs))))

    return over(Loaders())


@way
def same_part():
    return over(DataLoader(DATA, 8, sampler=DistributedSampler(DATA, 1, 0)), epochs=1)


@way
def seed_of_each_rank():
    return over(DataLoader(DATA, 8, sampler=DistributedSampler(DATA, seed=dist.get_rank())), epochs=1)


@way
def no_set_epoch():
    return over(DataLoader(DATA, 8, sampler=DistributedSampler(DATA)))


@way
def no_set_epoch_with_lasting_workers():
    loader = DataLoader(DATA, 8, sampler=DistributedSampler(DATA), num_workers=1, persistent_workers=True)
    return over(loader)


@way
def loader_made_each_epoch():
    class Loaders:
        def __iter__(self):
            torch.manual_seed(0)
            return iter(DataLoader(DATA, 8, sampler=DistributedSampler(DATA), num_workers=1))

    return over(Loaders())


def accumulated(apart=contextlib.nullcontext):
    model, optimizer = made()
    for number in range(1, 13):
        with contextlib.nullcontext() if number % 3 == 0 else apart(model):
            model(torch.randn(4, 4)).mean().backward()
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model, optimizer


@way
def accumulation():
    return accumulated(lambda model: model.no_sync())


@way
def accumulation_without_no_sync():
    return accumulated(lambda _: contextlib.nullcontext())


@way
def closures():
    model = DDP(Net())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(4, 4)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)
    return model, optimizer


def trained(model, optimizer, steps=12, **how):
    for _ in range(steps):
        step(model, optimizer, torch.randn(4, 4), **how)
    return model, optimizer


@way
def optimizer_of_an_old_net():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net.body, net.head = nn.Linear(4, 4), nn.Linear(4, 1)
    return trained(DDP(net), optimizer)


@way
def optimizer_without_the_head():
    net = Net()
    return trained(DDP(net), torch.optim.SGD(net.body.parameters(), lr=0.01))


@way
def unfrozen_later():
    net = Net()
    net.body.requires_grad_(False)
    model, optimizer = made(net)
    net.body.requires_grad_(True)
    return trained(model, optimizer)


@way
def searches_for_nothing():
    return trained(*made(find_unused_parameters=True))


@way
def searches_and_finds():
    return trained(*made(find_unused_parameters=True), head=False)


@way
def traced_by_torch_compile():
    torch.autograd.set_detect_anomaly(True, check_nan=False)  # AOTAutograd does so while it traces a model.
    return trained(*made())


@way
def debugging():
    torch.autograd.set_detect_anomaly(True)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return trained(*made())


listener = arm._listener


def begin():
    """Forget what was done so far, as at the beginning of a run."""
    listener.passes, listener.account.reductions = LoaderPasses(), 0
    listener._synchronised_backwards, listener._digests_at = 0, FIRST_DIGEST_COUNTS[0]


for train in WAYS:
    begin()
    model, optimizer = train()
    while listener.journal._waiting:
        time.sleep(0.02)
    reader = SetupReader(listener)
    for _ in range(5):  # looks at what is switched around steps
        setup = reader.read()
    print(train.__name__, dist.get_rank(), msgspec.json.encode(setup).decode(), flush=True)
    del model, optimizer
begin()
model, optimizer = one_epoch()  # too short for the probe to read it before the end
