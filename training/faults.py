"""Inject faults into a training, to test whether a dashboard reports them correctly.

    --slow PHASE:RANK:MS     RANK takes MS milliseconds longer in PHASE of each step; append :FIRST-LAST to limit
                             the delay to these steps
    --uneven RANK:FACTOR     the batches of RANK are FACTOR times as large
    --fail RANK:STEP         RANK raises an exception at STEP

Each delay is where it would be in a real run: in the dataset, in the module, in the backward pass, in the optimizer.
Only --uneven changes what the model learns.
"""

import argparse
import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.utils.data import Dataset, get_worker_info

PHASES = ("data", "forward", "backward", "optimizer", "other")


class Slow(NamedTuple):
    phase: str
    rank: int
    ms: float
    first: int = 1
    last: float = math.inf


class Uneven(NamedTuple):
    rank: int
    factor: float


class Fail(NamedTuple):
    rank: int
    step: int


def slow(text: str) -> Slow:
    try:
        phase, rank, ms, *steps = text.split(":", maxsplit=3)
        first, _, last = steps[0].partition("-") if steps else ("1", "", "inf")
        fault = Slow(phase, int(rank), float(ms), int(first), math.inf if last == "inf" else int(last))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not PHASE:RANK:MS[:FIRST-LAST], as in backward:2:30 or data:2:60:300-600"
        ) from None
    if phase not in PHASES:
        raise argparse.ArgumentTypeError(f"{text!r}: no phase {phase!r}; choose from {', '.join(PHASES)}")
    if not 0 <= fault.ms < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: {ms} is not a delay in milliseconds")
    if not 1 <= fault.first <= fault.last:
        raise argparse.ArgumentTypeError(f"{text!r}: {first}-{last} is not a range of steps, which count from 1")
    return fault


def uneven(text: str) -> Uneven:
    try:
        rank, factor = text.split(":")
        fault = Uneven(int(rank), float(factor))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK:FACTOR, as in 2:1.5") from None
    if not 0 < fault.factor < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: a batch cannot be {factor} times as large")
    return fault


def fail(text: str) -> Fail:
    try:
        rank, step = text.split(":")
        fault = Fail(int(rank), int(step))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK:STEP, as in 2:100") from None
    if fault.step < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: steps count from 1")
    return fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("inject faults (each option may be given several times)")
    group.add_argument(
        "--slow",
        type=slow,
        action="append",
        default=[],
        metavar="PHASE:RANK:MS[:FIRST-LAST]",
        help=f"RANK takes MS milliseconds longer in PHASE ({', '.join(PHASES)}), in all steps or in FIRST-LAST",
    )
    group.add_argument(
        "--uneven",
        type=uneven,
        action="append",
        default=[],
        metavar="RANK:FACTOR",
        help="the batches of RANK are FACTOR times as large",
    )
    group.add_argument(
        "--fail",
        type=fail,
        action="append",
        default=[],
        metavar="RANK:STEP",
        help="RANK raises an exception at STEP, which counts from 1",
    )


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Reject a fault whose rank does not exist."""
    for option in ("slow", "uneven", "fail"):
        for fault in getattr(args, option):
            if not 0 <= fault.rank < args.world_size:
                parser.error(f"argument --{option}: no rank {fault.rank} in a world of {args.world_size}")


@dataclass
class Faults:
    """The faults of this rank."""

    delays: list[Slow]
    factor: float
    fail_at: int | None
    step: int = 1
    """Number of the current step of the training loop."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> Self:
        delays = [fault for fault in args.slow if fault.rank == args.rank and fault.ms]
        factor = math.prod(fault.factor for fault in args.uneven if fault.rank == args.rank)
        fail_at = min((fault.step for fault in args.fail if fault.rank == args.rank), default=None)
        return cls(delays, factor, fail_at)

    @classmethod
    def none(cls) -> Self:
        return cls([], 1.0, None)

    def delayed(self, phase: str) -> bool:
        """Return True if this rank has a delay in a phase, in any step."""
        return any(fault.phase == phase for fault in self.delays)

    def delay(self, phase: str, step: int | None = None) -> None:
        """Sleep for the delay injected into a phase of a step. `step` None is the current step of the training loop."""
        at = self.step if step is None else step
        ms = sum(fault.ms for fault in self.delays if fault.phase == phase and fault.first <= at <= fault.last)
        if ms:
            time.sleep(ms / 1e3)

    def dataset(self, dataset: Dataset[Any]) -> Dataset[Any]:
        """Return the dataset, wrapped if this rank has slow data or larger batches."""
        if self.delayed("data") or self.factor != 1:
            return FaultyDataset(dataset, self)
        return dataset

    def inject(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Add hooks that delay forward, backward and optimizer. model: the module inside DistributedDataParallel."""
        if self.delayed("forward"):
            model.register_forward_pre_hook(self._slow_forward)
        if self.delayed("backward"):
            model.register_forward_hook(self._slow_backward)
        if self.delayed("optimizer"):
            optimizer.register_step_pre_hook(lambda *_: self.delay("optimizer"))

    def between_phases(self, step: int) -> None:
        """Delay the training loop between data and forward, or raise the injected exception."""
        self.step = step
        self.delay("other")
        if step == self.fail_at:
            raise RuntimeError(f"failed at step {step}, as --fail asked for")

    def _slow_forward(self, module: nn.Module, inputs: Any) -> None:
        if module.training:
            self.delay("forward")

    def _slow_backward(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        # The hook runs when the gradient reaches the model's output: inside backward, before any parameter's
        # gradient is ready. It returns None, which leaves the gradient unchanged.
        if output.requires_grad:
            output.register_hook(lambda _: self.delay("backward"))


class FaultyDataset(Dataset[Any]):
    """A dataset that takes longer for each batch, or returns more samples than requested.

    The DataLoader fetches a whole batch through __getitems__. With workers, the delay is in a worker,
    so it stays hidden while the workers load batches fast enough, as in a real run. The dataset counts the requested
    batches to know the step. With n workers, each worker loads every n-th batch.
    """

    def __init__(self, dataset: Dataset[Any], faults: Faults) -> None:
        self.dataset, self.faults = dataset, faults
        self.batches = 0

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        worker = get_worker_info()
        step = 1 + (self.batches if worker is None else self.batches * worker.num_workers + worker.id)
        self.batches += 1
        self.faults.delay("data", step)
        size = max(1, round(len(indices) * self.faults.factor))
        return [self.dataset[indices[i % len(indices)]] for i in range(size)]
