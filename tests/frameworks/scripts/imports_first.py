"""Imports a library that looks for torch before it imports it, then trains a few steps with DDP."""

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler

importlib.import_module(sys.argv[1])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
