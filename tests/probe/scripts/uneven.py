"""Two ranks with uneven inputs: one has fewer batches than the other; under torch's Join unless told "apart"."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def train() -> None:
    batches = 100 if dist.get_rank() else 140
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(8 * batches, 4)), batch_size=8)
    with contextlib.nullcontext() if "apart" in sys.argv else Join([model]):
        for (inputs,) in loader:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()  # the model ends with it: else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()
