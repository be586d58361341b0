"""Train a model that is split over two devices, inside DistributedDataParallel: each rank uses a pair of devices.

    ddpmon run --nproc 2 training/model_parallel.py
    torchrun --nproc-per-node 2 training/model_parallel.py

Rank K uses GPUs 2K and 2K+1. With fewer than two GPUs per rank, both halves are on the CPU: the script is the same, but
the split is useless.
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import arguments
from group import joined
from loop import accuracy_of, loader_for, train

SAMPLES = 4096
FEATURES, WIDTH, CLASSES = 64, 512, 10


class TwoDevices(nn.Module):
    """The first half of the layers on one device, the second half on another."""

    def __init__(self, devices: list[torch.device]) -> None:
        super().__init__()
        self.devices = devices
        self.first = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU()).to(devices[0])
        self.second = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)).to(devices[1])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs.to(self.devices[0]))
        return self.second(hidden.to(self.devices[1]))  # Autograd carries the gradient back the same way.


def points(seed: int) -> TensorDataset:
    """Return generated samples, the same on every rank. The class of a sample is the largest output of a linear map."""
    numbers = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, FEATURES, generator=numbers)
    return TensorDataset(inputs, (inputs @ torch.randn(FEATURES, CLASSES, generator=numbers)).argmax(1))


def main() -> None:
    args = arguments.parse(arguments.training_parser(__doc__, epochs=10, batch_size=32, lr=0.05))
    with joined(args, devices_per_rank=2) as here:
        here.say(f"each rank holds one half of the model on {here.devices[0]}, the other on {here.devices[1]}")
        dataset = points(args.seed)
        loader = loader_for(args, dataset)
        model = TwoDevices(here.devices)
        parallel = DistributedDataParallel(model)  # No device_ids: the model moves its own inputs.
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * here.world_size)
        trained = train(parallel, optimizer, loader, nn.CrossEntropyLoss(), args, here, accuracy_of=accuracy_of)
        if trained.finished:
            here.say(trained)
        del parallel  # joined() explains why.


if __name__ == "__main__":
    main()
