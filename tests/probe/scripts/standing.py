"""Ranks that train, and stand still where they are told to: one of them, in a place of its own, until it may go on.

Told by files in a folder: `HOW-RANK` (`sleep-1`) has that rank stand still at its next step, `HOW-RANK.end` has it go
on, `end` ends it all. Rank 0 has workers, which stand still for it (`workers-0`); `data-RANK` is for the others.
"""

import ctypes
import gc
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

gc.disable()  # what DDP imports takes a third less, and there is no garbage to speak of
FOLDER = Path(sys.argv[1])


def held(order: Path) -> bool:
    """Return whether the test has not let go yet."""
    return order.exists() and not os.path.exists(f"{order}.end")


def fell_asleep(order: Path) -> None:
    while held(order):
        time.sleep(0.1)


def keeps_the_lock(order: Path) -> None:
    """Waits for the end in C. No other thread of the process runs meanwhile."""
    if held(order):
        pipe = os.open(f"{order}.pipe", os.O_RDWR)  # both ends, so that it is not at its end at once
        ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)


def goes_in_circles(order: Path) -> None:
    rounds = 0
    while held(order):
        # Long enough for the interpreter to hand the lock over by itself: whoever lets go of it for a moment every few
        # milliseconds, as looking for a file does, keeps others from ever asking for it.
        for _ in range(3_000_000):
            rounds += 1


class Data(Dataset):
    def __init__(self, order: Path) -> None:
        self.order = order

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 8 == 0:
            fell_asleep(self.order)
        return torch.ones(8)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(FOLDER / ("workers-0" if rank == 0 else f"data-{rank}"))
    loader = DataLoader(data, batch_size=8, num_workers=0 if rank else 2)
    for batch in loader:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        fell_asleep(FOLDER / f"sleep-{rank}")
        goes_in_circles(FOLDER / f"spin-{rank}")
        keeps_the_lock(FOLDER / f"lock-{rank}")
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        over = torch.tensor(float((FOLDER / "end").exists()))
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.item():
            break
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
