"""Ranks that train until one of them stands still in a place of its own, for a while."""

import argparse
import ctypes
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


def held(marker: str) -> bool:
    """Whether the test has not let go yet."""
    return not os.path.exists(marker)


def fell_asleep(marker: str) -> None:
    while held(marker):
        time.sleep(0.1)


def keeps_the_lock(marker: str) -> None:
    """Waits for the marker in C. No other thread of the process runs meanwhile."""
    pipe = os.open(f"{marker}.pipe", os.O_RDWR)  # both ends, so that it is not at its end at once
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)


def goes_in_circles(marker: str) -> None:
    rounds = 0
    while held(marker):
        # Long enough for the interpreter to hand the lock over by itself: whoever lets go of it for a moment every few
        # milliseconds, as looking for a file does, keeps others from ever asking for it.
        for _ in range(3_000_000):
            rounds += 1


class Data(Dataset):
    def __init__(self, marker: str | None) -> None:
        self.marker = marker

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.marker and index == 160:
            fell_asleep(self.marker)
        return torch.ones(8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("marker", help="a file; once it is there, all go on")
    parser.add_argument("--how", choices=("sleep", "spin", "data", "workers", "lock", "nothing"), default="sleep")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=20)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    mine = dist.get_rank() == args.rank
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(args.marker if mine and args.how in {"data", "workers"} else None)
    loader = DataLoader(data, batch_size=8, num_workers=2 if args.how == "workers" else 0)
    end = Path(f"{args.marker}.end")
    for step, batch in enumerate(loader, 1):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        if step == args.step and mine and args.how == "sleep":
            fell_asleep(args.marker)
        if step == args.step and mine and args.how == "spin":
            goes_in_circles(args.marker)
        if step == args.step and mine and args.how == "lock":
            keeps_the_lock(args.marker)
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        over = torch.tensor(float(end.exists()))
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.item():
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
