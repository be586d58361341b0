"""A job for `attach.py`: trains for some seconds in one of several ways, and records when each step ended."""

from __future__ import annotations

import argparse
import array
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANKS = 2
BATCH, EPOCH_BATCHES = 16, 40
SLOW_SHARE = 0.25
ALLOCATING_THREADS = 3


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=["ddp", "spawn", "workers", "lightning"])
    parser.add_argument("moment", choices=["any", "all-reduce", "C call", "evaluation", "allocation", "slow"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-ms", type=float, default=40.0)
    return parser.parse_args()


class Net(nn.Module):
    """A model that sleeps in forward for most of a step."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.layers = nn.Sequential(nn.Linear(32, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.layers(x)


class Job:
    """The parts that every way of training in this file uses."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.rank, self.step = args, rank, 0
        torch.manual_seed(7)
        torch.set_num_threads(1)
        seconds = args.step_ms / 1e3
        self.net = Net(seconds * (1 + SLOW_SHARE * (args.moment == "slow" and rank == 1)))
        data = TensorDataset(torch.randn(BATCH * EPOCH_BATCHES, 32), torch.randint(0, 10, (BATCH * EPOCH_BATCHES,)))
        self.loader = DataLoader(data, BATCH, shuffle=True, num_workers=2 if args.way == "workers" else 0)
        self.ends = array.array("d")
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._allocate) for _ in range(ALLOCATING_THREADS)]
        if args.moment == "allocation":
            for thread in self.threads:
                thread.start()

    def stepped(self, model: nn.Module) -> None:
        """Record the end of a step, and run the job's additional work."""
        self.step += 1
        self.ends.append(time.monotonic())
        moment, seconds = self.args.moment, self.args.step_ms / 1e3
        if self.step % 10 == 0:
            with (self.args.folder / f"ends.{self.rank}.new").open("wb") as file:
                self.ends.tofile(file)
            os.replace(file.name, self.args.folder / f"ends.{self.rank}")
        if moment == "all-reduce":
            if self.rank == 1:
                time.sleep(2 * seconds)
            dist.all_reduce(torch.ones(4))
        elif moment == "C call":
            ctypes.PyDLL(None).usleep(int(3e6 * seconds))  # This function holds the GIL.
        elif moment == "evaluation" and self.step % 10 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(20):
                    model(torch.ones(4, 32))
            model.train()

    def save(self) -> None:
        self.ended.set()
        torch.save(self.net.state_dict(), self.args.folder / f"weights.{self.rank}")

    def _allocate(self) -> None:
        while not self.ended.is_set():
            [bytearray(100) for _ in range(1000)]
            torch.ones(10_000).sum()


def batches(job: Job) -> Iterator[list[torch.Tensor]]:
    while True:
        yield from job.loader


def train(args: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    job = Job(args, dist.get_rank())
    model = DistributedDataParallel(job.net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in batches(job):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        job.stepped(model)
        if job.step == args.steps:
            break
    job.save()
    dist.barrier()
    del model
    dist.destroy_process_group()


def spawned(rank: int, args: argparse.Namespace) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    train(args)


def with_lightning(args: argparse.Namespace) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "training"))
    import vision  # noqa: F401  Lightning imports torchvision, which works beside a CPU torch only after this

    del sys.path[0]
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.job = Job(args, int(os.environ["RANK"]))
            self.net = self.job.net

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def on_train_batch_end(self, *_: object) -> None:
            self.job.stepped(self.net)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp", max_steps=args.steps, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, module.job.loader)
    module.job.save()


def main() -> None:
    args = parsed()
    if args.way == "lightning":
        with_lightning(args)
    elif args.way == "spawn":
        multiprocessing.start_processes(spawned, (args,), RANKS, start_method="spawn")
    else:
        train(args)


if __name__ == "__main__":
    main()
