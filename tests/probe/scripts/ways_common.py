"""Shared parts of the ways of training: a little model, its batches, the plain loop, and the list of all ways."""

import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS = 12
BATCH = 8
WAYS = {}
"""Functions by name: each trains and returns what it trained."""
running = ""
"""The name of the way that trains now."""
compiled_s = {}
"""Seconds of compilation that Dynamo reports, by way."""


def way(function):
    """Add a way of training."""
    WAYS[function.__name__] = function
    return function


def net(norm=False):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32) if norm else nn.Tanh(), nn.ReLU(), nn.Linear(32, 4))


def batches(steps=STEPS, seed=None):
    generator = torch.Generator().manual_seed(100 + (dist.get_rank() if seed is None else seed))
    for _ in range(steps):
        yield torch.randn(BATCH, 16, generator=generator), torch.randint(0, 4, (BATCH,), generator=generator)


def report(losses):
    """One write, so that ranks do not mix within a line."""
    sys.stdout.write(f"{running} {dist.get_rank()} {losses}\n")
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
