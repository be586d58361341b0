"""Ranks that train; the third changes its weights alone."""

import gc
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    gc.disable()  # what DDP imports takes a third less, and there is no garbage to speak of
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())  # every rank has data of its own
    for step in range(1, 121):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
        if step == 50 and dist.get_rank() == 2:
            with torch.no_grad():
                model.module.weight.mul_(1.001)
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()
