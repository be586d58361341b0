"""Train with mistakes that show when ranks are compared, or with what looks like one: `checks.py MODE`, two ranks."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANK = int(os.environ["RANK"])
STEPS = 130


def data(rows=8 * STEPS):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))


def train(model, optimizer, loader, *, before=None, loss_of=nn.functional.mse_loss, after=None):
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    for step, (x, y) in enumerate(loader):
        if before:
            before(step, scaler)
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if after:
            after()


def alike():
    """Do on all ranks the same: samples, an evaluation without a way back, a rate of 0, skipped updates."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def before(step, scaler):
        if step == 72:
            model.eval()
        if step == 94:
            optimizer.param_groups[0]["lr"] = 0.0
        if step:
            scaler.update(1.0 if step % 4 else float("inf"))  # then no gradient is finite

    train(model, optimizer, DataLoader(data(), batch_size=8), before=before)


def apart():
    """Do what makes replicas differ: another rate, layers that are unfrozen late, statistics that nobody broadcasts."""
    inner = net()
    inner[0].requires_grad_(False)
    model = DDP(inner, broadcast_buffers=False)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)

    def before(step, _scaler):
        if step == 20:
            inner[0].requires_grad_(True)
            optimizer.param_groups[0]["lr"] = 0.005 if RANK else 0.01

    torch.manual_seed(RANK)  # dropout differs, and with it the losses
    train(model, optimizer, DataLoader(data(), batch_size=8), before=before)
    time.sleep(1.2)  # until the probe has read by itself which parameters are not reduced: it does so once a second


def alone():
    """Train without a process group."""
    model = net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data(), batch_size=8))


def healthy():
    """Train well, though losses are equal on all ranks, the rate begins at 0, and some updates are skipped."""
    inner = net()
    inner[0].requires_grad_(False)
    model = DDP(inner)
    optimizer = torch.optim.SGD(
        [{"params": inner[0].parameters(), "lr": 0.0}, {"params": inner[1:].parameters()}], lr=0.01
    )
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda _: 1.0, lambda step: min(1.0, step / 5)])

    class OfAll(torch.autograd.Function):
        """The mean over ranks, as losses are that compare the features of all."""

        @staticmethod
        def forward(context, loss):
            mean = loss.clone()
            dist.all_reduce(mean)
            return mean / dist.get_world_size()

        @staticmethod
        def backward(context, gradient):
            return gradient

    def before(step, scaler):
        if 0 < step < 9:
            scaler.update(float("inf") if step % 2 else 1.0)
        if step == 65:
            model.eval()
            with torch.no_grad():
                model(torch.randn(8, 8))
            model.train()

    dataset = data(16 * STEPS)
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))
    train(
        model, optimizer, loader, before=before, loss_of=lambda x, y: OfAll.apply(nn.functional.mse_loss(x, y)),
        after=warm_up.step,
    )  # fmt: skip


if __name__ == "__main__":
    mode = sys.argv[1]
    if mode == "alike":
        os.environ["NCCL_ALGO"] = "Ring" if RANK else "Tree"
    else:
        os.environ["NCCL_SOCKET_IFNAME"] = f"eth{RANK}"
    sys.argv += ["--rank", str(RANK), "--name", f"run-{RANK}"]
    if mode != "alone":
        dist.init_process_group("gloo")
    globals()[mode]()
    if mode != "alone":
        dist.barrier()
        dist.destroy_process_group()
