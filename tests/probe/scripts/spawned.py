"""Ranks by torch.multiprocessing.spawn or started by hand: no torchrun."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def rank_main(rank: int, world_size: int) -> None:
    if os.environ.get("SPEAKS"):
        print("before it is a rank")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    if os.environ.get("SPEAKS"):
        print(f"rank {rank} trained")
        os.write(2, f"rank {rank} from C\n".encode())
        subprocess.run(["echo", f"a child of rank {rank}"], check=True)
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="spawn")
    parser.add_argument("--world_size", type=int, default=2)
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    if os.environ.get("SPEAKS"):
        print("the launcher", flush=True)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if args.rank is None:
        mp.start_processes(rank_main, args=(args.world_size,), nprocs=args.world_size, start_method=args.method)
    else:
        rank_main(args.rank, args.world_size)
