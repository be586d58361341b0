"""A DDP loop with steps of a chosen length, which measures its own speed; also the cost of listening alone."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WARM_UP = 100


class Endless(Dataset):
    """Batches without end, made once."""

    def __init__(self) -> None:
        self.item = torch.randn(256)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.item


def model_of(parameters: int) -> torch.nn.Module:
    """A model with this many parameter tensors."""
    layers = [torch.nn.Linear(256, 256) for _ in range(max(1, parameters // 2))]
    return torch.nn.Sequential(*layers)


def loop(seconds: float, step_ms: float, around_step: Callable[[Any], Any]) -> float:
    """Steps per second of this rank after the warm-up; all ranks agree on the number of steps.

    around_step: makes the context of a step from the model.
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(model_of(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    work = torch.randn(192, 192)

    def compute(milliseconds: float) -> int:
        end = time.perf_counter() + milliseconds / 1000
        rounds = 0
        while time.perf_counter() < end:
            work @ work
            rounds += 1
        return rounds

    rounds = int(statistics.median(compute(step_ms * 0.7) for _ in range(50)))
    agreed = torch.tensor(float(rounds))
    dist.all_reduce(agreed)
    rounds = int(agreed.item() / dist.get_world_size())
    loader = iter(DataLoader(Endless(), batch_size=16))
    began, done, target = 0.0, 0, 1 << 30
    while done < target:
        if done == WARM_UP:
            began = time.perf_counter()
        batch = next(loader)
        with around_step(model):
            for _ in range(rounds):
                work @ work
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        done += 1
        if done == WARM_UP + 50:
            steps = torch.tensor(seconds * 50 / (time.perf_counter() - began))
            dist.broadcast(steps, 0)
            target = WARM_UP + max(50, int(steps.item()))
    return (done - WARM_UP) / (time.perf_counter() - began)


def thread_cost(parameters: int) -> float:
    """Microseconds of listening per step: the same calls in one loop, wrapped and bare, around no work at all."""
    from ddpmon.probe.identity import Identity
    from ddpmon.probe.interception import replace
    from ddpmon.probe.listener import Listener

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(
        torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1)) for _ in range(parameters)])
    )
    loss = torch.ones((), requires_grad=True)
    listener = Listener(Identity("benchmark"))
    listener.model_wrapped(None, model)
    replica = listener.replicas.of(model)
    optimizer = torch.optim.SGD(model.parameters())
    batch = (torch.ones(16, 8),)
    iterator = object()
    silent = 0.0

    def step() -> None:
        """What the hooks call in one step, in order, with the two checks that every wrapper makes."""
        for _ in range(5):
            listener.hears()
        listener.fetch_begins(iterator)
        listener.fetch_ends(batch, iterator)
        listener.forward_begins(model, *batch)
        listener.backward_expected(None, model.reducer)
        listener.forward_ends(None, model)
        listener.backward_begins((loss,), accumulate_grad=True)
        replica._times = []  # as if the gradients had just been reduced
        listener.backward_ends(None, loss)
        listener.optimizer_begins(optimizer)
        listener.optimizer_ends(optimizer)

    class Empty:
        def call(self, *_args: object) -> None:
            return None

    bare = Empty()
    rounds = 20_000
    args = (batch, iterator)
    for name in ("bare", "wrapped"):
        if name == "wrapped":
            replace(Empty, "call", listener, before=lambda *_: None, after=lambda *_: None)
        began = time.perf_counter()
        for _ in range(rounds):
            for _ in range(4):
                bare.call(*args)
        spent = (time.perf_counter() - began) / rounds
        silent = spent - silent
    for _ in range(200):
        step()
    began = time.perf_counter()
    for done in range(rounds):
        step()
        if done % 50 == 0:
            listener.clock.finished.clear()  # the sending thread would have taken them
    listening = (time.perf_counter() - began) / rounds
    dist.destroy_process_group()
    return (listening + silent) * 1e6


def phase_cost() -> float:
    """Microseconds that one `with ddpmon.phase(…)` takes on the training thread, where a probe is armed."""
    from ddpmon import api
    from ddpmon.probe.identity import Identity
    from ddpmon.probe.listener import Listener

    def rounds(make: Callable[[str], Any], count: int = 50_000) -> float:
        began = time.perf_counter()
        for _ in range(count):
            with make("augment"):
                pass
        return (time.perf_counter() - began) / count * 1e6

    silent = rounds(contextlib.nullcontext)
    api.attach(Listener(Identity("benchmark")))
    return rounds(api.phase) - silent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--result")
    parser.add_argument("--thread-cost", type=int)
    parser.add_argument("--phase-cost", action="store_true")
    parser.add_argument("--traceml", action="store_true", help="add the two lines that TraceML asks for")
    args = parser.parse_args()
    if args.thread_cost:
        print(thread_cost(args.thread_cost))
        return
    if args.phase_cost:
        print(phase_cost())
        return
    dist.init_process_group("gloo")
    around_step: Callable[[Any], Any] = contextlib.nullcontext
    if args.traceml:
        import traceml_ai

        traceml_ai.init(mode="auto")
        around_step = traceml_ai.trace_step
    rate = loop(args.seconds, args.step_ms, around_step)
    if dist.get_rank() == 0 and args.result:
        with open(args.result, "w") as file:
            file.write(repr(rate))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
