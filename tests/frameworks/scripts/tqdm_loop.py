"""A loop of one's own with tqdm's bars on rank 0: over epochs, over batches, and over batches of evaluation."""

import sys
import time

import task
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

EPOCHS = 2
BATCHES = 50
SECONDS = 0.05
"""Length of a batch: bars are read once a second."""


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    items = torch.randn(BATCHES * task.BATCH * dist.get_world_size(), 16)
    sampler = DistributedSampler(items)
    loader = DataLoader(items, task.BATCH, sampler=sampler)
    quiet = dist.get_rank() > 0
    losses = []
    for epoch in tqdm(range(EPOCHS), disable=quiet):
        sampler.set_epoch(epoch)
        for batch in tqdm(loader, leave=False, disable=quiet):
            loss = torch.nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            time.sleep(0 if "--hasty" in sys.argv else SECONDS)
        with torch.no_grad():
            for batch in tqdm(loader, leave=False, disable=quiet):
                model(batch)
    task.leave(task.folder(), dist.get_rank(), model, losses)
    task.part()


if __name__ == "__main__":
    main()
