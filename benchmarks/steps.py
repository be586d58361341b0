"""A DDP loop with steps of a chosen length, which measures itself: its speed, or what listening costs in place.

Speed: `--steps` of them, each with `--rounds` of work besides, so that runs can be compared that do the same work. Each
rank then keeps to a core of its own: else two that wait for each other now and then share one, and take twice as long.

In place: in one process, blocks of steps in which torch is as it came (bare), in which it has ddpmon's wrappers but
nobody listens (silent), and in which it is watched, in the order ABCCBA. The training thread's CPU time of
each step is read, so that neither other processes nor waiting for other ranks is in it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset

WARM_UP = 100
BLOCK_MS = 15.0
"""A block of steps takes about so long: short, so that both of a pair see the machine in the same mood."""
SETTLE = 3
"""Steps after a change of state that are not counted: they close what was open, and warm up what was changed."""
WIDTHS = {10: 128, 500: 8}
"""Width of the parameters of a model with so many of them."""
Around = Callable[[Any], Any]
"""Makes the context of a step from the model."""


class Endless(Dataset):
    """Batches without end, made once."""

    def __init__(self, width: int) -> None:
        self.item = torch.randn(width)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.item


class Many(torch.nn.Module):
    """Uses all of its parameters in one operation: its step is short beside what a layer for each would take."""

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
    """CPU of this thread inside what watching leaves alone: the model's layers, the autograd engine, arithmetic.

    It is taken out of what a step takes. It is the same watched or not, and many times as long as what is looked for,
    so that its noise would hide that; it still leaves caches cold.
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
    """Stands for autograd's, whose attributes cannot be replaced."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.run_backward = engine.run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Training:
    """A model and its loop: `step` takes one, of the length that `pace` has set."""

    def __init__(self, parameters: int) -> None:
        torch.manual_seed(0)
        module = model_of(parameters)
        self._inside = Inside()
        module.forward = self._inside.timed(module.forward)
        self.model = DistributedDataParallel(module)
        self.around: Around = contextlib.nullcontext
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self._zero_grad = self._inside.timed(self._optimizer.zero_grad)
        self._loader = iter(DataLoader(Endless(WIDTHS[parameters]), batch_size=16))
        self._work = torch.randn(192, 192)
        self.rounds = 0
        """Rounds of additional work in a step."""
        self._lengthen = self._inside.timed(self._multiply)

    def _multiply(self) -> None:
        for _ in range(self.rounds):
            self._work @ self._work

    def step(self) -> None:
        batch = next(self._loader)
        with self.around(self.model):
            self._lengthen()
            loss = self.model(batch).square().mean()
            self._zero_grad()
            loss.backward()
            self._optimizer.step()

    def pace(self, step_ms: float) -> float:
        """Have all ranks do so much work besides that a step takes this long; returns milliseconds of a step."""
        without = self.mean_ms(WARM_UP)
        began = time.perf_counter()
        for _ in range(200):
            self._work @ self._work
        round_ms = (time.perf_counter() - began) * 1000 / 200
        self.rounds = int(agreed(max(0.0, step_ms - without) / round_ms))
        return self.mean_ms(WARM_UP)

    def mean_ms(self, steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) * 1000 / steps

    def block_us(self, steps: int) -> list[tuple[float, float]]:
        """Microseconds of this thread's CPU that each step of a block takes: without what is inside, and in all."""
        moments = [(time.thread_time_ns(), self._inside.ns)]
        for _ in range(steps):
            self.step()
            moments.append((time.thread_time_ns(), self._inside.ns))
        spent = [(end - begin, inside - before) for (begin, before), (end, inside) in pairwise(moments)]
        return [((whole - inside) / 1000, whole / 1000) for whole, inside in spent]


def agreed(number: float) -> float:
    """The mean of a number over all ranks."""
    total = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


class Wrappers:
    """Everything that the probe has put into torch, to take it out and put it back."""

    def __init__(self, listener: Any) -> None:
        import ddpmon

        self._folder = str(Path(ddpmon.__file__).parent)
        self._ours: list[tuple[Any, str, Any, Any]] = []
        self._hot = listener.hot
        self._watched = False
        owners: dict[int, Any] = {}
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "torch" and hasattr(module, "__dict__"):
                owners[id(module)] = module
                owners |= {id(one): one for one in list(vars(module).values()) if isinstance(one, type)}
        for owner in owners.values():
            for name, value in list(vars(owner).items()):
                if self._is_ours(value):
                    self._ours.append((owner, name, value, self._original(owner, value)))
        self._hooks = [
            (hooks, key, hook)
            for hooks in (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
            for key, hook in hooks.items()
        ]
        if len(self._ours) < 10 or len(self._hooks) < 2:
            raise SystemExit("the probe is not armed: there is nothing to measure")
        self._collectors = [callback for callback in gc.callbacks if self._is_ours(callback)]

    def _is_ours(self, value: Any) -> bool:
        function = value.__func__ if isinstance(value, MethodType) else value
        return isinstance(function, FunctionType) and function.__code__.co_filename.startswith(self._folder)

    def _original(self, owner: Any, value: Any) -> Any:
        while self._is_ours(value):
            value = value.__wrapped__
        if isinstance(owner, type) and not callable(getattr(type(value), "__get__", None)):
            # what pybind11 has in a class; read from there, only the function inside comes
            instance_method = ctypes.pythonapi.PyInstanceMethod_New
            instance_method.argtypes, instance_method.restype = [ctypes.py_object], ctypes.py_object
            value = instance_method(value)
        return value

    def bare(self) -> None:
        """torch as it came."""
        self.silent()
        for owner, name, _, original in self._ours:
            setattr(owner, name, original)
        for hooks, key, _ in self._hooks:
            hooks.pop(key, None)
        for callback in self._collectors:
            with contextlib.suppress(ValueError):
                gc.callbacks.remove(callback)

    def silent(self) -> None:
        """torch with the wrappers; nobody listens."""
        for owner, name, ours, _ in self._ours:
            setattr(owner, name, ours)
        for hooks, key, hook in self._hooks:
            hooks[key] = hook
        for callback in self._collectors:
            if callback not in gc.callbacks:
                gc.callbacks.append(callback)
        if self._watched and not self._hot.thread:
            raise SystemExit("the probe left: there is nothing to measure")
        self._hot.thread = 0
        self._watched = False

    def watched(self) -> None:
        self.silent()
        self._hot.thread = threading.get_ident()
        self._watched = True


def states(training: Training, traced: Around | None) -> dict[str, Callable[[], None]]:
    """Return, by name, the functions that put the process into each compared state; the first state is the base."""
    if traced is not None:

        def use(around: Around) -> Callable[[], None]:
            return lambda: setattr(training, "around", around)

        return {"silent": use(contextlib.nullcontext), "watched": use(traced)}
    from ddpmon.probe import arm

    wrappers = Wrappers(arm._listener)
    return {"bare": wrappers.bare, "silent": wrappers.silent, "watched": wrappers.watched}


def compare(
    into: dict[str, Callable[[], None]], training: Training, step_ms: float, seconds: float
) -> Iterator[dict[str, list[list[tuple[float, float]]]]]:
    """A cycle at a time: of each state's two blocks what `block_us` says of each step.

    Cycles end when `seconds` are over on any rank, for all ranks after the same one.
    """
    order = [*into, *reversed(into)]
    steps = int(agreed(min(24, max(8, BLOCK_MS / step_ms))))
    end = time.monotonic() + seconds
    while agreed(time.monotonic() >= end) == 0:
        spent: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in into}
        for name in order:
            into[name]()
            for _ in range(SETTLE):
                training.step()
            spent[name].append(training.block_us(steps))
        yield spent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--parameters", type=int, choices=WIDTHS, default=10)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured in place")
    parser.add_argument("--rounds", type=int, help="of work besides in each step, instead of --step-ms")
    parser.add_argument("--steps", type=int, default=WARM_UP, help="measured for their speed")
    parser.add_argument("--result")
    parser.add_argument("--in-place", action="store_true", help="measure what listening costs, else speed")
    parser.add_argument("--traceml", action="store_true", help="add the two lines that TraceML asks for")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    traced: Around | None = None
    if args.traceml:
        import traceml_ai

        traceml_ai.init(mode="auto")
        traced = traceml_ai.trace_step
    training = Training(args.parameters)
    if traced is not None:
        training.around = traced
    if not args.in_place:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[dist.get_rank() % len(cores)]})
    if args.rounds is None:
        step_ms = training.pace(args.step_ms)
    else:
        training.rounds = args.rounds
        step_ms = training.mean_ms(WARM_UP)
    if args.in_place:
        into = states(training, traced)
        cycles = list(compare(into, training, step_ms, args.seconds))
        result: Any = {"step_ms": step_ms, "cycles": cycles}
        into["watched"]()
    else:
        Path("ready").touch()
        result = {"step_ms": training.mean_ms(args.steps), "rounds": training.rounds}
    if dist.get_rank() == 0 and args.result:
        Path(args.result).write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
