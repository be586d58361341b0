"""Measure what reading a DataLoader costs the training thread when a pass over it begins and when it ends.

    ddpmon run --headless --nproc 2 benchmarks/epoch_reads.py       half a minute

Each of the two calls is timed by the thread's CPU clock, beside real work that has emptied the caches.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddpmon.probe.loader_passes import LoaderPasses

EPOCHS, SAMPLES, BATCH = 40, 256, 8
COLD_FLOATS = 400_000
"""Summed before each step: more than the caches of a core hold."""

took_ns: dict[str, list[int]] = defaultdict(list)


def timed(name: str) -> None:
    """Have each call of a method of LoaderPasses timed."""
    original = getattr(LoaderPasses, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **named: Any) -> Any:
        began = time.thread_time_ns()
        try:
            return original(*args, **named)
        finally:
            took_ns[name].append(time.thread_time_ns() - began)

    setattr(LoaderPasses, name, wrapper)


def train() -> None:
    """Train with workers and without, an epoch being 16 steps."""
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(SAMPLES, 16))
    sampler = DistributedSampler(data)
    for workers in (0, 2):
        loader = DataLoader(data, BATCH, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for (batch,) in loader:
                torch.randn(COLD_FLOATS).sum()
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()


if __name__ == "__main__":
    for method in ("read_from", "ended"):
        timed(method)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    if dist.get_rank() == 0:
        for method, times in took_ns.items():
            median_us, least_us = statistics.median(times) / 1e3, min(times) / 1e3
            print(f"{method}: {len(times)} calls, median {median_us:.1f} us, least {least_us:.1f}")
    dist.destroy_process_group()
