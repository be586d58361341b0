"""Garbage is collected often, on two ranks."""

import gc
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, EVERY = 60, 6
GARBAGE = [[number] for number in range(400_000)]


def main():
    gc.disable()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(0.005)
        optimizer.step()
        if step % EVERY == 1:
            gc.collect()
    dist.barrier()
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
