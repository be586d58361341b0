"""A DDP loop on a GPU that measures its own speed: resnet18 or a small transformer, nccl or gloo."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

WARM_UP = 30


class Transformer(nn.Module):
    """A model of four encoder layers over token ids, with mean pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(512, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["resnet18", "transformer"], default="resnet18")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--slow-rank", type=int, default=-1, help="this rank multiplies matrices in its forward")
    parser.add_argument("--slow-work", type=int, default=0)
    parser.add_argument("--slow-data-ms", type=float, default=0.0, help="rank --slow-rank sleeps here before each step")
    parser.add_argument("--result")
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    if args.model == "resnet18":
        from torchvision.models import resnet18

        inner, item = resnet18(num_classes=10), torch.randn(3, 112, 112)
    else:
        inner, item = Transformer(), torch.randint(0, 1000, (128,))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.extra = args.slow_work if rank == args.slow_rank else 0
            self.register_buffer("block", torch.randn(4096, 4096) if self.extra else torch.zeros(1), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.extra):
                self.block @ self.block
            return self.inner(x)

    model = DistributedDataParallel(Model().to(device), device_ids=[device.index], broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    samples = [(item, number % 10) for number in range((args.steps + WARM_UP) * args.batch_size)]
    loader = DataLoader(samples, args.batch_size, num_workers=2, pin_memory=True)
    began = host_end = 0.0
    for step, (x, y) in enumerate(loader):
        if step == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if args.slow_data_ms and rank == args.slow_rank:
            time.sleep(args.slow_data_ms / 1000)
        loss = nn.functional.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        host_end = time.perf_counter()
    torch.cuda.synchronize()
    ended = time.perf_counter()
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    if rank == 0 and args.result:
        facts = {
            "steps_per_s": args.steps / (ended - began),
            "ahead_ms": (ended - host_end) * 1000,
            "weights": digest.hexdigest()[:16],
            "loss": loss.item(),
        }
        with open(args.result, "w") as file:
            json.dump(facts, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
