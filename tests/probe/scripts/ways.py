"""The ways people train with DDP, a few steps each: `ways.py NAME… --save PATH`, on two ranks.

Every way builds its own little model and returns what was trained; the weights are saved per rank. Here are the loops;
how batches come and what besides training is done have files of their own.
"""

import argparse
import contextlib
import os
import sys
from pathlib import Path

if __name__ == "__mp_main__":  # a DataLoader worker that is spawned
    sys.path.append(str(Path(__file__).parents[2] / "light"))
    import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
import ways_common
import ways_of_collectives  # noqa: F401  its ways
import ways_of_loading  # noqa: F401  its ways
import ways_of_stepping  # noqa: F401  its ways
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from ways_common import BATCH, STEPS, WAYS, batches, compiled_s, net, report, train, way

import ddpmon


@way
def plain():
    return train(DDP(net()))


@way
def batchnorm():
    return train(DDP(net(norm=True)))


@way
def accumulation():
    """Three backward calls a step, each loss divided, the first two under no_sync."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, total = [], 0.0
    for number, (x, y) in enumerate(batches(3 * STEPS), 1):
        last = number % 3 == 0
        with contextlib.nullcontext() if last else model.no_sync():
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


@way
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


@way
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


@way
def manual_optimization():
    """Lightning tells DDP only after the forward that its gradients are to be reduced."""
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


@way
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


@way
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


@way
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


class Branches(nn.Module):
    """Uses one of its branches, by the data."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.branches = nn.ModuleList([nn.Linear(16, 4) for _ in range(3)])
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.branches[self.calls % 3](x) + self.branches[1](x)


@way
def unused_parameters():
    return train(DDP(Branches(), find_unused_parameters=True))


@way
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


@way
def never_synchronised():
    """A classic mistake: the inner module is called, so DDP never sees the backward."""
    model = DDP(net())
    train(model.module)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ways", nargs="+", choices=sorted(WAYS))
    parser.add_argument("--save")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    for name in args.ways:
        ways_common.running = name
        ddpmon.log(way=sorted(WAYS).index(name))
        model = WAYS[name]()
        if args.save:
            torch.save(model.state_dict(), f"{args.save}.{name}.{dist.get_rank()}")
        dist.barrier()
    if args.save:
        torch.save(compiled_s, f"{args.save}.compiled_s.{dist.get_rank()}")
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
