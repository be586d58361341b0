"""The ways people train with DDP, a few steps each: `ways.py NAME… --save PATH`, on two ranks.

Every way builds its own little model and returns what was trained; the weights are saved per rank.
"""

import argparse
import contextlib
import dataclasses
import datetime as dt
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter

import ddpmon

way = ""
compiled_s = {}
STEPS = 12
BATCH = 8


def net(norm=False):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32) if norm else nn.Tanh(), nn.ReLU(), nn.Linear(32, 4))


def batches(steps=STEPS, seed=None):
    generator = torch.Generator().manual_seed(100 + (dist.get_rank() if seed is None else seed))
    for _ in range(steps):
        yield torch.randn(BATCH, 16, generator=generator), torch.randint(0, 4, (BATCH,), generator=generator)


def report(losses):
    """One write, so that ranks do not mix within a line."""
    sys.stdout.write(f"{way} {dist.get_rank()} {losses}\n")
    sys.stdout.flush()


def train(model, optimizer=None, data=None, forward=None):
    """The plain loop."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for batch in batches() if data is None else data:
        x, y = batch if forward is None else forward(batch)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses)
    return model


def plain():
    return train(DDP(net()))


def batchnorm():
    return train(DDP(net(norm=True)))


def accumulated(apart):
    """Three backward calls a step, each loss divided. apart: what the first two run in."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, total = [], 0.0
    for number, (x, y) in enumerate(batches(3 * STEPS), 1):
        last = number % 3 == 0
        with contextlib.nullcontext() if last else apart(model):
            loss = nn.functional.cross_entropy(model(x), y) / 3
            loss.backward()
        total += loss.item()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
            total = 0.0
    report(losses)
    return model


def accumulation():
    """The first two under no_sync."""
    return accumulated(DDP.no_sync)


def accumulation_synchronised():
    """Without no_sync, as many scripts do: each backward all-reduces."""
    return accumulated(contextlib.nullcontext)


def accumulation_ends_early():
    """Four batches a step, of the last one two: what is left of an epoch."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, number = [], 0
    for size in (*[4] * (STEPS - 1), 2):
        parts = []
        for last in [False] * (size - 1) + [True]:
            x, y = next(iter(batches(1, seed=number)))
            number += 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y) / 4
                loss.backward()
            parts.append(loss.item() * 4)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(parts) / len(parts))
    report(losses)
    return model


def scaler_skips():
    """GradScaler begins with a scale that is too large: the first optimizer steps are left out."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    losses, scales = [], []
    for x, y in batches():
        loss = 4 * nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        losses.append(loss.item())
    assert scales[0] < 2.0**127, "none was left out"
    report(losses)
    return model


def manual_optimization():
    """As Lightning's: DDP is told only after the forward that its gradients are to be reduced."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in batches():
        model.require_backward_grad_sync = False
        loss = nn.functional.cross_entropy(model(x), y)
        model.require_backward_grad_sync = True
        model.reducer._rebuild_buckets()
        model.reducer.prepare_for_backward([])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses)
    return model


def two_optimizers():
    """One backward, two optimizers for parts of the model, as Muon and AdamW go together."""
    model = DDP(net())
    weights = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    optimizers = [torch.optim.SGD(weights, lr=0.1), torch.optim.AdamW(rest, lr=0.01)]
    losses = []
    for x, y in batches():
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    report(losses)
    return model


def autocast_scaler():
    """bf16 autocast, GradScaler, clipping, a scheduler."""
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for x, y in batches():
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        losses.append(loss.item())
    report(losses)
    return model


def gan():
    """Two DDP models, two optimizers, three backward calls an iteration."""
    torch.manual_seed(0)
    generator = DDP(nn.Linear(8, 16))
    critic = DDP(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)), broadcast_buffers=False)
    for_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
    for_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    noise = torch.Generator().manual_seed(dist.get_rank())
    for real, _ in batches():
        fake = generator(torch.randn(BATCH, 8, generator=noise))
        for_critic.zero_grad()
        (1 - critic(real)).relu().mean().backward()
        (1 + critic(fake.detach())).relu().mean().backward()
        for_critic.step()
        for_generator.zero_grad()
        (-critic(fake).mean()).backward()
        for_generator.step()
    return nn.ModuleList([generator, critic])


def marked():
    """The script says itself what a step is: two updates."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = batches(2 * STEPS)
    for _ in range(STEPS):
        with ddpmon.step(samples=5, total=STEPS):
            for _ in range(2):
                x, y = next(data)
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return model


def join_uneven():
    """Rank 1 has four batches more."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for x, y in batches(STEPS + 4 * dist.get_rank()):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def fp16_hook():
    model = DDP(net())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(model)


def power_sgd():
    model = DDP(net())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(model)


def bucket_view():
    return train(DDP(net(), gradient_as_bucket_view=True))


class Branches(nn.Module):
    """Uses one of its branches, by the data."""

    def __init__(self, fixed):
        super().__init__()
        torch.manual_seed(0)
        self.branches = nn.ModuleList([nn.Linear(16, 4) for _ in range(3)])
        self.fixed = fixed
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.branches[0 if self.fixed else self.calls % 3](x) + self.branches[1](x)


def unused_parameters():
    return train(DDP(Branches(fixed=False), find_unused_parameters=True))


def static_graph():
    return train(DDP(Branches(fixed=True), static_graph=True))


def lbfgs():
    model = DDP(net())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for x, y in batches(4):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


class Stream(IterableDataset):
    """Batches without a length, each worker its part."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(torch.utils.data.get_worker_info().id)
        for _ in range(STEPS * BATCH // 2):
            yield torch.randn(16, generator=generator), 1


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


def loaders():
    """Forked, spawned and persistent workers, one after the other."""
    model = DDP(net())
    for options in (
        {"multiprocessing_context": "fork"},
        {"multiprocessing_context": "spawn"},
        {"multiprocessing_context": "fork", "persistent_workers": True},
    ):
        loader = DataLoader(Items(), batch_size=BATCH, num_workers=2, **options)
        for _ in range(2):
            train(model, data=loader)
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


def batch_kinds():
    """Dicts, tuples and dataclasses handed to the model whole."""
    model = DDP(TakesAnything())
    train(model, data=DataLoader(Items("dict"), batch_size=BATCH), forward=lambda b: (b, b["y"]))
    train(model, data=DataLoader(Items(), batch_size=BATCH), forward=lambda b: (b, b[1]))
    return train(model, data=(Pair(x, y) for x, y in batches()), forward=lambda b: (b, b.y))


def evaluation():
    """An evaluation and a checkpoint between epochs."""
    model = DDP(net(norm=True))
    for _ in range(2):
        train(model, data=batches(6))
        model.eval()
        with torch.no_grad():
            for x, _ in batches(5):
                model(x)
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), os.devnull)
        dist.barrier()
        model.train()
    return model


def compiled(made):
    """Train what `made` makes, and keep how long Dynamo says that it compiled."""
    torch._dynamo.reset()
    before = compiling_s()
    model = train(made())
    compiled_s[way] = compiling_s() - before
    return model


def compiling_s():
    return sum(torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", ()))


def compiled_around():
    return compiled(lambda: torch.compile(DDP(net()), backend="aot_eager"))


def compiled_inside():
    return compiled(lambda: DDP(torch.compile(net(), backend="aot_eager")))


def inside_collectives():
    """The script's own collectives, blocking and not, and a compiled one."""
    model = train(DDP(net()), data=batches(4))
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    dist.barrier()
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, {"rank": dist.get_rank()})
    values = [torch.zeros(2) for _ in gathered]
    dist.all_gather(values, torch.full((2,), float(dist.get_rank())))
    sys.stdout.write(f"{gathered} {values} {inspectable()}\n")
    return train(model, data=batches(4))


class Normalised(torch.autograd.Function):
    """The collectives of SyncBatchNorm on a GPU, called as it calls them: one in forward, one in backward."""

    @staticmethod
    def forward(ctx, x):
        sums = x.sum(0)
        gathered = torch.empty(dist.get_world_size() * len(sums))
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(gathered, sums, None, async_op=False)
        return x - gathered.view(-1, len(sums)).sum(0) / (len(x) * dist.get_world_size())

    @staticmethod
    def backward(ctx, grad):
        sums = grad.sum(0)
        torch.distributed.all_reduce(sums, torch.distributed.ReduceOp.SUM, None, async_op=False)
        return grad - sums / (len(grad) * dist.get_world_size())


class Centre(nn.Module):
    def forward(self, x):
        return Normalised.apply(x)


def normalised_over_ranks():
    inner = net()
    inner[1] = Centre()
    return train(DDP(inner))


def waits():
    """Collectives that are waited for later: a work, and the tensor of a functional one."""

    def reduced():
        for x, y in batches():
            work = dist.all_reduce(torch.ones(3), async_op=True)
            total = functional.all_reduce(x.mean(0), "sum", dist.group.WORLD)
            centred = x - total / dist.get_world_size()
            work.wait()
            yield centred, y

    return train(DDP(net()), data=reduced())


def compiled_collectives():
    """In a graph of its own: what torch.compile cannot look into would be an error."""

    @torch.compile(backend="aot_eager", fullgraph=True)
    def mean(x):
        dist.all_reduce(x)
        return functional.all_reduce(x, "sum", dist.group.WORLD) / dist.get_world_size()

    torch._dynamo.reset()
    return train(DDP(net()), data=((x - mean(x.mean(0)), y) for x, y in batches()))


class Inherits(dist.Work):
    """A work of the script's own, which has no `wait` of its own."""

    def __init__(self):
        super().__init__()


def inherited_wait():
    try:
        return Inherits().wait(dt.timedelta(milliseconds=10))
    except RuntimeError as error:
        return str(error).splitlines()[0]


def inspectable():
    """What a curious script sees of torch's functions."""
    return [
        inherited_wait(),
        dist.all_reduce.__name__,
        dist.barrier.__module__,
        DDP.forward.__qualname__,
        torch.autograd.backward.__doc__[:10],
    ]


def never_synchronised():
    """A classic mistake: the inner module is called, so DDP never sees the backward."""
    model = DDP(net())
    train(model.module)
    return model


WAYS = {
    name: function
    for name, function in list(globals().items())
    if callable(function) and getattr(function, "__module__", "") == __name__ and not isinstance(function, type)
    and name not in ("net", "batches", "train", "report", "accumulated", "compiled", "compiling_s", "inspectable")
    and name != "inherited_wait"
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ways", nargs="+", choices=sorted(WAYS))
    parser.add_argument("--save")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    global way
    for way in args.ways:
        ddpmon.log(way=sorted(WAYS).index(way))
        model = WAYS[way]()
        if args.save:
            torch.save(model.state_dict(), f"{args.save}.{way}.{dist.get_rank()}")
        dist.barrier()
    if args.save:
        torch.save(compiled_s, f"{args.save}.compiled_s.{dist.get_rank()}")
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
