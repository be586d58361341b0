"""Two or more ranks, a small model with buffers, delays, and a fault on request."""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import ddpmon

PHASES = ("data", "forward", "backward", "optimizer", "other")
STEPS_EACH = 20
"""Steps in which one phase is slow, where each of them is."""


class Delayed(torch.autograd.Function):
    """Sleeps in backward."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad, None


class Data(TensorDataset):
    """Sleeps once a batch on request."""

    late = None

    def __getitems__(self, indices):
        with ddpmon.phase("augment"):
            time.sleep(self.late["data"])
        return [self[i] for i in indices]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--slow", default=":", help="PHASE:RANK; each:RANK: in each phase for some steps")
    parser.add_argument("--seconds", type=float, default=0.03)
    parser.add_argument("--fail", type=int, default=0)
    parser.add_argument("--hold", type=Path, help="before the tenth step, wait for this file")
    parser.add_argument("--save")
    parser.add_argument("--collective", action="store_true")
    parser.add_argument("--break-probe", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    slow, _, slow_rank = args.slow.partition(":")
    late = dict.fromkeys(PHASES, 0.0)

    def delay(step):
        """Set the delays of a step."""
        now = PHASES[step // STEPS_EACH % len(PHASES)] if slow == "each" else slow
        late.update((phase, args.seconds * (phase == now and slow_rank == str(rank))) for phase in PHASES)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
            )

        def forward(self, x):
            time.sleep(late["forward"])
            return self.layers(x)

    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.register_step_pre_hook(lambda *_: time.sleep(late["optimizer"]))
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(16 * args.steps, 32, generator=generator)
    targets = torch.randint(0, 10, (16 * args.steps,), generator=generator)
    data = Data(inputs, targets)
    data.late = late
    delay(1)
    loader = DataLoader(data, batch_size=16)
    if args.break_probe:
        from ddpmon.probe import stepclock

        def broken(*_args):
            raise RuntimeError("broken on purpose")

        stepclock.StepClock.cut = broken
    losses = []
    for step, (x, y) in enumerate(loader, 1):
        time.sleep(late["other"])
        while step == 10 and args.hold and not args.hold.exists():
            time.sleep(0.02)
        loss = torch.nn.functional.cross_entropy(Delayed.apply(model(x), late["backward"]), y)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == args.fail and rank == dist.get_world_size() - 1:
            raise ValueError("wrong on purpose, password=hunter2")
        optimizer.step()
        if args.collective:
            if rank == 0:
                time.sleep(args.seconds)
            dist.all_reduce(torch.ones(4))
        delay(step + 1)
    if rank == 0:
        print("losses", *(repr(value) for value in losses))
    if args.save:
        torch.save(model.state_dict(), f"{args.save}.{rank}")
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()
    del os.environ["RANK"]


if __name__ == "__main__":
    main()
