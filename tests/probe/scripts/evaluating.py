"""Trains, has the first rank alone evaluate for some seconds and write a checkpoint, trains on.

Arguments: those seconds; after how many the others stop waiting, half an hour if left out.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        time.sleep(0.02)  # get_batch: this script loads without a DataLoader
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[2]) if sys.argv[2:] else 1800))
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    train(model, optimizer, 80)
    if dist.get_rank() == 0:
        end = time.monotonic() + float(sys.argv[1])
        model.eval()
        with torch.no_grad():
            while time.monotonic() < end:
                model(torch.randn(8, 16))
                time.sleep(0.05)
        model.train()
        torch.save(model.state_dict(), os.devnull)
    train(model, optimizer, 80)
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
