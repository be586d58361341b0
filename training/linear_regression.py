"""Fit a linear layer to noisy points: the smallest script with DistributedDataParallel.

ddpmon run --nproc 2 training/linear_regression.py
torchrun --nproc-per-node 2 training/linear_regression.py
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import arguments
from group import joined
from loop import loader_for, train

SAMPLES = 4096
FEATURES = 8


def points(seed: int) -> tuple[TensorDataset, torch.Tensor]:
    """Return generated samples, the same on every rank, and the weights that generated them."""
    numbers = torch.Generator().manual_seed(seed)
    weights = torch.randn(FEATURES, 1, generator=numbers)
    inputs = torch.randn(SAMPLES, FEATURES, generator=numbers)
    noise = 0.1 * torch.randn(SAMPLES, 1, generator=numbers)
    return TensorDataset(inputs, inputs @ weights + noise), weights


def main() -> None:
    args = arguments.parse(arguments.training_parser(__doc__, epochs=5, batch_size=32, lr=0.01))
    with joined(args) as here:
        dataset, weights = points(args.seed)
        loader = loader_for(args, dataset)
        model = nn.Linear(FEATURES, 1).to(here.device)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * here.world_size)
        trained = train(parallel, optimizer, loader, nn.MSELoss(), args, here, print_every=None)
        if trained.finished:
            error = (model.weight.detach().cpu() - weights.T).abs().max().item()
            here.say(f"weights found to within {error:.3f}")
            here.say(trained)
        del parallel  # joined() explains why.


if __name__ == "__main__":
    main()
