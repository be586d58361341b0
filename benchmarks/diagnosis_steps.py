"""A DDP loop whose steps are made of sleeps of a chosen length, with a fault of a chosen kind from a chosen step on."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PHASES = ("data", "forward", "backward", "optimizer", "other")
SHARES = {"data": 0.05, "forward": 0.3, "backward": 0.5, "optimizer": 0.1, "other": 0.05}
KINDS = (
    "none", "persistent", "moving", "periodic", "transient", "uneven", "nan", "hang", "dead",
    "irregular", "ramp", "bursts", "faster", "changes", "all",
)  # fmt: skip
BATCH = 8
HANG_S = 30.0
BURSTS_BEGIN_S, BURST = 4.0, 0.3
"""Seconds before the first burst, and the bursts' share of the time."""
RAMP_ENDS = 1.3
"""Length of the run after the beginning of the ramp, as a multiple of the ramp's length."""
WAS_SLOW = "data"
"""The phase that is slow before the fault moves to another one."""


class Schedule:
    """The sleeps of this rank in each phase of the current step."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.step = args, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.began = time.monotonic()
        self.chance = random.Random(args.begin)

    def at_fault(self) -> bool:
        args = self.args
        since = self.step - args.begin
        if args.kind == "none" or since < 0 or (args.end and self.step >= args.end):
            return False
        if args.kind == "moving":
            return since * 7 // 3 % self.world == self.rank
        if args.kind == "all":
            return True
        if args.kind == "bursts":
            seconds = time.monotonic() - self.began - BURSTS_BEGIN_S
            return self.rank in args.ranks and seconds >= 0 and seconds % args.every < args.every * BURST
        return self.rank in args.ranks and (args.kind != "periodic" or since % args.every == 0)

    def sleep(self, phase: str) -> None:
        args = self.args
        length = args.step_ms * SHARES[phase]
        if args.kind == "changes" and self.rank in args.ranks and self.step < args.begin:
            length += args.step_ms * args.size * (phase == WAS_SLOW)
        if self.at_fault():
            if args.kind == "hang":
                length = HANG_S * 1e3 if self.step == args.begin and phase == args.phase else length
            elif args.kind == "dead":
                os.kill(os.getpid(), signal.SIGKILL)
            elif args.kind == "nan":
                pass
            elif args.kind == "uneven":
                length *= 1 + args.size
            elif args.kind == "faster":
                length *= 1 - args.size
            elif phase == args.phase:
                length += args.step_ms * args.size * self.strength()
        time.sleep(length / 1e3 / (1 if phase == "optimizer" else args.accumulate))

    def strength(self) -> float:
        """Return the share of the delay that applies to the current step."""
        if self.args.kind == "irregular":
            return float(self.chance.random() < 1 / self.args.every)
        if self.args.kind == "ramp":
            return min(1.0, (self.step - self.args.begin) / (self.args.steps - self.args.begin) * RAMP_ENDS)
        return 1.0

    def batch(self) -> int:
        return round(BATCH * (1 + self.args.size)) if self.args.kind == "uneven" and self.at_fault() else BATCH

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * float("nan") if self.args.kind == "nan" and self.at_fault() else loss


class Batches(Dataset):
    """A dataset in which each item is a batch; loading it takes the time of the phase `data`."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def __len__(self) -> int:
        return self.schedule.args.steps * self.schedule.args.accumulate

    def __getitem__(self, index: int) -> torch.Tensor:
        self.schedule.step = index // self.schedule.args.accumulate + 1
        self.schedule.sleep("data")
        return torch.ones(self.schedule.batch(), 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--step-ms", type=float, default=40.0)
    parser.add_argument("--kind", choices=KINDS, default="none")
    parser.add_argument("--ranks", type=lambda text: [int(rank) for rank in text.split(",")], default=[1])
    parser.add_argument("--phase", choices=PHASES, default="backward")
    parser.add_argument("--size", type=float, default=0.25, help="of the step's length")
    parser.add_argument("--begin", type=int, default=60, help="first step with the fault")
    parser.add_argument("--end", type=int, default=0, help="first step without it again")
    parser.add_argument(
        "--every", type=int, default=10, help="steps of a period; bursts: seconds; irregular: on average"
    )
    parser.add_argument("--norm", action="store_true", help="a BatchNorm layer: its buffers are broadcast")
    parser.add_argument("--accumulate", type=int, default=1, help="batches of a step")
    parser.add_argument("--mark", help="file that gets the moment at which the fault begins")
    parser.add_argument("--traceml", action="store_true", help="add the two lines that TraceML asks for")
    args = parser.parse_args()
    around = lambda _model: contextlib.nullcontext()
    if args.traceml:
        import traceml_ai

        traceml_ai.init(mode="auto")
        around = traceml_ai.trace_step

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    schedule = Schedule(args)
    layers = [nn.Linear(64, 64), *([nn.BatchNorm1d(64)] if args.norm else []), nn.Linear(64, 1)]
    inner = nn.Sequential(*layers)
    inner.register_forward_pre_hook(lambda *_: schedule.sleep("forward"))
    inner.register_forward_hook(
        lambda _module, _inputs, output: output.register_hook(lambda _gradient: schedule.sleep("backward")) and None
    )
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer.register_step_pre_hook(lambda *_: schedule.sleep("optimizer"))
    for index, batch in enumerate(DataLoader(Batches(schedule), batch_size=None)):
        if args.mark and schedule.step == args.begin and not os.path.exists(args.mark):
            Path(args.mark).write_text(repr(time.time()))
        with around(model):
            schedule.sleep("other")
            last = (index + 1) % args.accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                schedule.loss(model(batch).square().mean()).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
