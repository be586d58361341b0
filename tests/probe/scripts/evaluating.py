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


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[2]) if sys.argv[2:] else 1800))
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(steps: int) -> None:
        for _ in range(steps):
            time.sleep(0.02)  # get_batch: this script loads without a DataLoader
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    train(80)
    if dist.get_rank() == 0:
        end = time.monotonic() + float(sys.argv[1])
        with torch.no_grad():
            while time.monotonic() < end:
                model(torch.randn(8, 16))
                time.sleep(0.05)
        torch.save(model.state_dict(), os.devnull)
    train(80)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
