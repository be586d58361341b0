"""Training loops with mistakes that people report, and the same loops without them: `mistakes.py NAME`.

With MENDED=1 in the environment, a loop is correct, and ddpmon must find nothing. Each mistake is from a public report,
named beside its command.
"""
# Run: torchrun --nproc-per-node 2 mistakes.py stream  Symptom: ranks read one stream (huggingface/datasets#5360)
# Run: torchrun --nproc-per-node 2 mistakes.py no_sync  Symptom: no_sync gains nothing (baidu-baige/LoongForge#163)
# Run: torchrun --nproc-per-node 2 mistakes.py past_ddp  Symptom: all gradients differ (huggingface/trl#7245)
# Run: torchrun --nproc-per-node 3 mistakes.py nan  Symptom: stands still after a NaN (pytorch/pytorch#97191)
# Run: torchrun --nproc-per-node 3 mistakes.py logs  Symptom: stands still when rank 0 logs (huggingface/trl#5094)
# Run: torchrun --nproc-per-node 2 mistakes.py leaves  Symptom: never begins (huggingface/accelerate#314)
# Run: torchrun --nproc-per-node 2 mistakes.py unused  Symptom: one rank misses a gradient (pytorch/pytorch#43259)
# Run: torchrun --nproc-per-node 2 mistakes.py twice  Symptom: replicas drift apart (pytorch/pytorch#24005)
# Run: torchrun --nproc-per-node 2 mistakes.py sample  Symptom: KeyError in a worker (Lightning#18149)
# Run: torchrun --nproc-per-node 2 mistakes.py rate  Symptom: learns nothing any more (pytorch/pytorch#22107)
# Run: torchrun --nproc-per-node 2 mistakes.py mode  Symptom: worse after validation (fartashf/vsepp#4)
# Run: torchrun --nproc-per-node 2 mistakes.py scale  Symptom: the loss scale falls (ymcui/Chinese-LLaMA-Alpaca#534)
# Run: torchrun --nproc-per-node 2 mistakes.py saves  Symptom: dies while rank 0 saves (huggingface/accelerate#2912)
# Run: torchrun --nproc-per-node 2 mistakes.py restarts  Symptom: workers all the time (visionml/pytracking#374)
# Run: torchrun --nproc-per-node 2 mistakes.py lock  Symptom: never begins (NVlabs/stylegan2-ada-pytorch#41)
# Run: torchrun --nproc-per-node 2 mistakes.py full  Symptom: dies in torch.save (karpathy/nanochat#336)
# Run: torchrun --nproc-per-node 2 mistakes.py killed  Symptom: a worker is killed (pytorch/pytorch#5902)
# Run: torchrun --nproc-per-node 2 mistakes.py parts  Symptom: half the data (NVlabs/LongLive#71)
# Run: torchrun --nproc-per-node 2 mistakes.py uneven  Symptom: stuck at 95% (pytorch/pytorch#33148)
# Run: torchrun --nproc-per-node 2 mistakes.py added  Symptom: checkpoints differ (PL#20340)
# Run: torchrun --nproc-per-node 2 mistakes.py grows  Symptom: workers fill the memory (pytorch/pytorch#13246)
# Run: torchrun --nproc-per-node 3 mistakes.py calls  Symptom: stands still at a metric (Lightning#20404)

import contextlib
import datetime as dt
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
RANK = int(os.environ["RANK"])


class Net(nn.Module):
    """A model of two layers, a head that a forward may leave out, and a forward that sleeps."""

    def __init__(self, width=16, *others):
        super().__init__()
        self.body, self.others, self.head = nn.Linear(16, width), nn.Sequential(*others), nn.Linear(width, 1)

    def forward(self, x, head=True):
        time.sleep(0.02)
        x = self.others(self.body(x))
        return self.head(x) if head else x


def made(net=None, rate=0.01, **how):
    model = DDP(net or Net(), **how)
    return model, torch.optim.SGD(model.parameters(), lr=rate)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def train(model, optimizer, steps=250):
    for _ in range(steps):
        step(model, optimizer, torch.randn(8, 16))


def data(samples=640):
    x = torch.randn(samples, 16, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x)


class Images(Dataset):
    """A dataset of samples that workers read. On rank 1, `then` is called for one sample."""

    def __init__(self, then, samples=800):
        self.then, self.samples = then, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if index == self.samples - 19 and RANK == 1 and not MENDED:
            self.then()
        return torch.randn(16)


class Cached(Dataset):
    """A dataset that stores everything that its workers have read."""

    def __init__(self):
        self.cache = []

    def __len__(self):
        return 16_000

    def __getitem__(self, index):
        if not MENDED:
            self.cache.append(torch.randn(8_000))
        return torch.randn(16)


def over(images):
    """Train one epoch on images that a worker reads."""
    model, optimizer = made()
    for x in DataLoader(images, 4, sampler=DistributedSampler(images, shuffle=False), num_workers=1):
        step(model, optimizer, x)


class Stream(IterableDataset):
    def __iter__(self):
        made_by = torch.Generator().manual_seed(0)
        for number in range(4000):
            x = torch.randn(16, generator=made_by)
            if not MENDED or number % dist.get_world_size() == RANK:
                yield x


def stream():
    model, optimizer = made()
    for x in DataLoader(Stream(), 8):
        step(model, optimizer, x)


def no_sync():
    model, optimizer = made(Net(1024, nn.Linear(1024, 1024), nn.Linear(1024, 1024)), rate=1e-5)
    for number in range(1, 321):
        apart = contextlib.nullcontext() if number % 4 == 0 else model.no_sync()
        with apart if MENDED else contextlib.nullcontext():
            loss = model(torch.randn(2, 16)).square().mean()
            if MENDED:
                loss.backward()
        if not MENDED:
            with apart:  # This wraps the backward only, not the forward: the mistake.
                loss.backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def past_ddp():
    model, optimizer = made()
    train(model if MENDED else model.module, optimizer)


def nan():
    model, optimizer = made(Net(16, nn.BatchNorm1d(16)))
    for number in range(150):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().mean()
        if RANK == 1 and number == 100 and not MENDED:
            continue  # The loss is not finite, so this batch is left out.
        loss.backward()
        optimizer.step()


def logs():
    model, optimizer = made()
    for number in range(200):
        loss = step(model, optimizer, torch.randn(8, 16)).detach()
        if (RANK == 0 or MENDED) and number % 50 == 49:
            dist.all_reduce(loss)
            print("loss", loss.item() / dist.get_world_size())


def leaves():
    train(*made(), steps=100)


def unused():
    model, optimizer = made(find_unused_parameters=MENDED)
    for number in range(200):
        optimizer.zero_grad()
        model(torch.randn(8, 16), head=number != 100 or RANK != 1).square().mean().backward()
        optimizer.step()


class Checkpointed(Net):
    def forward(self, x):
        time.sleep(0.02)
        for _ in range(2):
            x = checkpoint(self.body, x, use_reentrant=not MENDED)
        return self.head(x)


def twice():
    x = torch.randn(8, 16, requires_grad=True)
    model, optimizer = made(Checkpointed())
    for _ in range(100):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def sample():
    def raises():
        raise KeyError("img_00780.jpg")

    over(Images(raises))


def rate():
    model, optimizer = made()
    # The schedule counts epochs, but is queried after each batch. The correct one has a warm-up from 0, and a decay
    # over all batches.
    factor = (lambda n: min(n / 20, 1) * (1 - n / 251)) if MENDED else (lambda n: max(0, 1 - n / 60))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(250):
        step(model, optimizer, torch.randn(8, 16))
        scheduler.step()


def mode():
    model, optimizer = made(Net(16, nn.Dropout(0.1)))
    for _ in range(5):
        if MENDED:
            model.train()
        train(model, optimizer, steps=50)
        model.eval()
        with torch.no_grad():
            for _ in range(10):
                model.module(torch.randn(8, 16))


def scale():
    model, optimizer = made(Net(16, nn.Dropout(0.1)))
    scaler = torch.amp.GradScaler("cpu", growth_interval=2000 if MENDED else 1, init_scale=2.0**16)
    for number in range(300):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().mean()
        if number % 2 and not MENDED:
            loss = loss * 1e38
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def saves():
    model, optimizer = made()
    for _ in range(3):
        train(model, optimizer, steps=60)
        if RANK == 0:
            time.sleep(2 if MENDED else 40)  # Stands for a large checkpoint on a slow disk.
        dist.barrier()


def restarts():
    model, optimizer = made()
    loader = DataLoader(data(), 8, sampler=DistributedSampler(data()), num_workers=1, persistent_workers=MENDED)
    batches = iter(loader)
    for number in range(160 if MENDED else 80):
        if number % 40 == 0 or not MENDED:
            loader.sampler.set_epoch(number)
            batches = iter(loader)
        step(model, optimizer, next(batches)[0])


def lock():
    from filelock import SoftFileLock

    if not MENDED:
        open("cache.lock", "a").close()  # Left by a run that was killed.
    with SoftFileLock("cache.lock"):
        pass
    train(*made(), steps=60)


def full():
    model, optimizer = made()
    train(model, optimizer, steps=60)
    if RANK == 0:
        torch.save(model.state_dict(), "model.pt" if MENDED else "/dev/full")
    train(model, optimizer, steps=60)


def killed():
    over(Images(lambda: os.kill(os.getpid(), signal.SIGKILL)))


def parts():
    model, optimizer = made()
    sampler = DistributedSampler(data(), seed=0 if MENDED else int(time.time()) + 1000 * RANK)
    loader = DataLoader(data(), 8, sampler=sampler)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            step(model, optimizer, x)


def uneven():
    model, optimizer = made()
    mine = Subset(data(1300), range(900) if RANK == 0 else range(900, 1300))
    with Join([model]) if MENDED else contextlib.nullcontext():
        for (x,) in DataLoader(mine, 8, shuffle=True):
            step(model, optimizer, x)
    dist.barrier()


def added():
    net = Net()
    late = nn.Linear(16, 16)
    if MENDED:
        net.others.append(late)
    model = DDP(net)
    if not MENDED:
        net.others.append(late)  # An adapter, added after the model was wrapped.
    train(model, torch.optim.SGD(net.parameters(), lr=0.01))


def grows():
    over(Cached())


def calls():
    model, optimizer = made()
    train(model, optimizer, steps=100)
    score = torch.ones(1)
    if RANK == 2 and not MENDED:
        dist.all_reduce(score)
    else:
        dist.broadcast(score, 0)
    train(model, optimizer, steps=50)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    name = sys.argv[1]
    if name == "leaves" and RANK == 1 and not MENDED:
        sys.exit(0)  # This rank has finished its part.
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=20 if name == "saves" else 600))
    globals()[name]()
    dist.barrier()
    dist.destroy_process_group()
