"""Three ranks that train; on request, one changes its weights alone, or none lets DDP synchronise."""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("well", "alone", "unsynchronised"))
    how = parser.parse_args().how
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trained = model.module if how == "unsynchronised" else model
    for step in range(1, 121):
        optimizer.zero_grad()
        trained(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
        if how == "alone" and step == 50 and dist.get_rank() == 2:
            with torch.no_grad():
                model.module.weight.mul_(1.001)
    dist.barrier()
    dist.destroy_process_group()
