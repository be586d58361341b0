"""A DDP loop with steps of a chosen length, which can measure the CPU time of a step's thread."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

WARM_UP = 100
BATCH, SAMPLES = 16, 1 << 21
"""Samples per batch, and samples in the whole tensor, which are more than a measurement needs."""
WIDTHS = {10: 128, 500: 8}
"""Width of each parameter, by the number of parameters of a model."""
Around = Callable[[Any], Any]
"""A function that returns the context of a step for a model."""


class Many(torch.nn.Module):
    """A model that uses all of its parameters in one operation, so that its step is short compared with one layer for
    each.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(width) for _ in range(count))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return batch * torch.stack(tuple(self.weights)).sum(0)


def model_of(parameters: int) -> torch.nn.Module:
    width = WIDTHS[parameters]
    if parameters > 100:
        return Many(parameters, width)
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(parameters // 2)))


class Inside:
    """CPU time of this thread inside what watching does not change: the model's layers, the autograd engine,
    arithmetic.

    It is subtracted from a step's time. It is the same watched or not, and many times as long as the cost to be
    measured, so that its noise would hide that cost; it still leaves caches cold.
    """

    def __init__(self) -> None:
        self.ns = 0
        engine = Engine(torch.autograd.Variable._execution_engine)
        engine.run_backward = self.timed(engine.run_backward)
        torch.autograd.Variable._execution_engine = engine
        arithmetic = importlib.import_module("torch.optim.sgd")
        arithmetic.sgd = self.timed(arithmetic.sgd)

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            before = time.thread_time_ns()
            result = call(*args, **kwargs)
            self.ns += time.thread_time_ns() - before
            return result

        return timed


class Engine:
    """Replaces autograd's engine, whose attributes cannot be replaced."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.run_backward = engine.run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Training:
    """A model and its loop: `step` makes one step, with the length that `pace` has set."""

    def __init__(self, parameters: int) -> None:
        torch.manual_seed(0)
        module = model_of(parameters)
        self._inside = Inside()
        module.forward = self._inside.timed(module.forward)
        self.model = DistributedDataParallel(module)
        self.around: Around = contextlib.nullcontext
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self._zero_grad = self._inside.timed(self._optimizer.zero_grad)
        self._loader = iter(DataLoader([torch.randn(WIDTHS[parameters])] * SAMPLES, BATCH))
        self._work = torch.randn(192, 192)
        self.numbers = range(0)
        """Numbers that each round adds up in Python, which needs the GIL."""
        self.rounds = 0
        """Number of rounds of additional work in a step."""
        self._lengthen = self._inside.timed(lambda: self._work_rounds(self.rounds))

    def _work_rounds(self, rounds: int) -> None:
        for _ in range(rounds):
            self._work @ self._work
            sum(self.numbers)

    def step(self) -> None:
        batch = next(self._loader)
        with self.around(self.model):
            self._lengthen()
            loss = self.model(batch).square().mean()
            self._zero_grad()
            loss.backward()
            self._optimizer.step()

    def pace(self, step_ms: float) -> float:
        """Add work on all ranks until a step takes this long; return the milliseconds of a step."""
        without = self.mean_ms(WARM_UP)
        began = time.perf_counter()
        self._work_rounds(200)
        round_ms = (time.perf_counter() - began) * 1000 / 200
        self.rounds = int(agreed(max(0.0, step_ms - without) / round_ms))
        return self.mean_ms(WARM_UP)

    def mean_ms(self, steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) * 1000 / steps

    def block_us(self, steps: int) -> list[tuple[float, float]]:
        """Return the µs of this thread's CPU for each step of a block: without the time in `Inside`, and in all."""
        moments = [(time.thread_time_ns(), self._inside.ns)]
        for _ in range(steps):
            self.step()
            moments.append((time.thread_time_ns(), self._inside.ns))
        spent = [(end - begin, inside - before) for (begin, before), (end, inside) in pairwise(moments)]
        return [((whole - inside) / 1000, whole / 1000) for whole, inside in spent]


def agreed(number: float) -> float:
    """Return the mean of a number over all ranks."""
    total = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
