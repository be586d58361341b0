"""Train a small ConvNet on handwritten digits with DistributedDataParallel.

ddpmon run --nproc 4 training/mnist.py
torchrun --nproc-per-node 4 training/mnist.py
python training/mnist.py --world_size 2 --rank 0      (and --rank 1 in a second shell)
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

import arguments
from group import Here, download_once, joined
from loop import accuracy_of, loader_for, train
from vision import datasets, transforms

DIGITS = Path(__file__).parent / "data" / "digits"


class ConvNet(nn.Module):
    """Two blocks of convolution, normalisation and pooling, and a linear layer: 28x28 pixels to 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.block1 = self._block(1, 16)
        self.block2 = self._block(16, 32)
        self.classes = nn.Linear(32 * 7 * 7, 10)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, kernel_size=5, padding=2)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classes(self.block2(self.block1(images)).flatten(1))


def load(args: argparse.Namespace, here: Here) -> tuple[Dataset, Dataset]:
    """Return the training digits, moved and turned at random each time, and the test digits as they are."""
    if args.dataset == "mnist":
        root = args.data
        download_once(here, lambda: datasets.MNIST(root, download=True), "MNIST")
    else:
        root = DIGITS
    # Mean and standard deviation of the grey levels are both about 0.3; normalised levels lie in about -1 to 2.3.
    plain = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.3, 0.3)])
    moved = transforms.Compose([transforms.RandomAffine(degrees=15, translate=(0.1, 0.1)), plain])
    return datasets.MNIST(root, train=True, transform=moved), datasets.MNIST(root, train=False, transform=plain)


@torch.no_grad()
def evaluate(model: nn.Module, held_back: Dataset, here: Here) -> tuple[int, int]:
    """Return how many test digits the model recognises, and how many there are. Each rank evaluates its share."""
    # BatchNorm's running statistics differ between ranks. DistributedDataParallel broadcasts those of rank 0 before
    # forward. Evaluate without DistributedDataParallel: ranks with more batches than others would wait for broadcasts
    # forever.
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
    model.eval()
    # A DistributedSampler would repeat some digits to make the shares equal, so these digits would count twice.
    share = Subset(held_back, range(here.rank, len(held_back), here.world_size))
    counts = torch.zeros(2, dtype=torch.int64, device=here.device)
    for images, labels in DataLoader(share, batch_size=256):
        right = model(images.to(here.device)).argmax(1) == labels.to(here.device)
        counts += torch.tensor([right.sum(), len(labels)], device=here.device)
    dist.all_reduce(counts)
    right, seen = counts.tolist()
    return right, seen


def main() -> None:
    parser = arguments.training_parser(__doc__, epochs=100, batch_size=32, lr=0.01)
    parser.add_argument(
        "--dataset", choices=("digits", "mnist"), default="digits", help="mnist downloads (%(default)s)"
    )
    arguments.add_data(parser)
    args = arguments.parse(parser)
    with joined(args) as here:
        digits, held_back = load(args, here)
        loader = loader_for(args, digits)
        model = ConvNet().to(here.device)
        parallel = DistributedDataParallel(model)
        # Each step averages over world_size times as many samples, so the learning rate is multiplied by it too.
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * here.world_size)
        trained = train(parallel, optimizer, loader, nn.CrossEntropyLoss(), args, here, accuracy_of=accuracy_of)
        if trained.finished:
            right, seen = evaluate(model, held_back, here)
            here.say(f"test accuracy {right / seen:.1%} ({right} of {seen} test digits)")
            here.say(trained)
        del parallel  # joined() explains why.


if __name__ == "__main__":
    main()
