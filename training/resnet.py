"""Train torchvision's resnet18: 62 gradients, and BatchNorm buffers that DDP broadcasts at each step.

    ddpmon run --nproc 2 training/resnet.py
    torchrun --nproc-per-node 2 training/resnet.py --dataset cifar10
    torchrun --nproc-per-node 8 training/resnet.py --image-size 224 --batch-size 128     (on GPUs)

The default images are random. They need no download, but a model cannot learn anything from them.
"""

import argparse

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import arguments
from group import Here, download_once, joined
from loop import accuracy_of, loader_for, train
from vision import datasets, models, transforms

CLASSES = 10


def load(args: argparse.Namespace, here: Here) -> Dataset:
    if args.dataset == "fake":
        size = (3, args.image_size, args.image_size)
        return datasets.FakeData(args.images, size, CLASSES, transform=transforms.ToTensor())
    download_once(here, lambda: datasets.CIFAR10(args.data, download=True), "CIFAR-10")
    transform = transforms.Compose([transforms.Resize(args.image_size), transforms.ToTensor()])
    return datasets.CIFAR10(args.data, train=True, transform=transform)


def main() -> None:
    parser = arguments.training_parser(__doc__, epochs=5, batch_size=8, lr=0.01)
    parser.add_argument(
        "--dataset", choices=("fake", "cifar10"), default="fake", help="cifar10 downloads (%(default)s)"
    )
    arguments.add_data(parser)
    parser.add_argument("--images", type=arguments.positive, default=512, help="number of random images (%(default)s)")
    parser.add_argument("--image-size", type=arguments.positive, default=32, help="pixels a side (%(default)s)")
    args = arguments.parse(parser)
    with joined(args) as here:
        dataset = load(args, here)
        loader = loader_for(args, dataset)
        model = models.resnet18(num_classes=CLASSES).to(here.device)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * here.world_size, momentum=0.9)
        trained = train(
            parallel,
            optimizer,
            loader,
            nn.CrossEntropyLoss(),
            args,
            here,
            accuracy_of=accuracy_of,
            print_every=20,
        )
        if trained.finished:
            rate = trained.steps * args.batch_size * here.world_size / trained.seconds
            here.say(f"{trained}, {rate:.0f} images/s")
        del parallel  # joined() explains why.


if __name__ == "__main__":
    main()
