"""Compare the throughput of nn.DataParallel and DistributedDataParallel on the same model and batches.

    ddpmon run --nproc 2 training/data_parallel.py
    torchrun --nproc-per-node 2 training/data_parallel.py

nn.DataParallel is one process: it copies the model to every GPU at each step, and one Python interpreter drives
them all. DistributedDataParallel is one process per GPU: each keeps its replica, and only gradients are sent.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import arguments
from faults import Faults
from group import Here, joined

WARM_UP = 5
FEATURES, WIDTH, CLASSES = 256, 1024, 10


def build(device: torch.device) -> nn.Module:
    hidden = [nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, CLASSES)).to(device)


def seconds(model: nn.Module, loader: DataLoader, here: Here, faults: Faults) -> float:
    """Return the seconds that the steps over the loader take, without the first few steps, which warm up."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    faults.inject(model.module, optimizer)
    for step, (inputs, targets) in enumerate(loader, 1):
        faults.between_phases(step)
        loss = nn.functional.cross_entropy(model(inputs.to(here.device)), targets.to(here.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == WARM_UP:
            finish(here)
            started = time.perf_counter()
    finish(here)
    return time.perf_counter() - started


def finish(here: Here) -> None:
    """Wait until the GPU has finished all queued work."""
    if here.device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = arguments.parser(__doc__, batch_size=256)
    parser.add_argument("--steps", type=arguments.positive, default=50, help="number of timed steps (%(default)s)")
    args = arguments.parse(parser)
    whole_batch = args.batch_size * args.world_size
    with joined(args) as here:
        samples = whole_batch * (WARM_UP + args.steps)
        dataset = TensorDataset(torch.randn(samples, FEATURES), torch.randint(CLASSES, (samples,)))
        here.say(f"{args.steps} steps of {whole_batch} samples each")

        faults = Faults.of(args)
        sampler = DistributedSampler(dataset, shuffle=False)
        loader = DataLoader(faults.dataset(dataset), batch_size=args.batch_size, sampler=sampler)
        many_s = seconds(DistributedDataParallel(build(here.device)), loader, here, faults)

        if here.rank == 0:
            # nn.DataParallel uses one process for all GPUs. The other ranks wait meanwhile, and use no core.
            loader = DataLoader(dataset, batch_size=whole_batch)
            one_s = seconds(nn.DataParallel(build(here.device)), loader, here, Faults.none())
            compare(args, here, one_s, many_s)
        dist.barrier(group=here.control)


def compare(args: argparse.Namespace, here: Here, one_s: float, many_s: float) -> None:
    samples = args.steps * args.batch_size * here.world_size
    gpus = torch.cuda.device_count() if here.device.type == "cuda" else 0
    used = min(gpus, here.world_size)
    for name, processes, devices, took_s in (
        ("nn.DataParallel", 1, gpus, one_s),
        ("DistributedDataParallel", here.world_size, used, many_s),
    ):
        print(f"{name:24} processes {processes}, GPUs {devices} {samples / took_s:12,.0f} samples/s")
    print(f"DistributedDataParallel is {one_s / many_s:.2f} times as fast")
    if not gpus:
        print(
            "Without a GPU, nn.DataParallel cannot split a batch and calls the plain model: "
            f"this compares one process with {here.world_size} that exchange gradients, on the same CPU cores."
        )


if __name__ == "__main__":
    main()
