"""Two ranks by torch.multiprocessing, without torchrun."""

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
    print("before it is a rank")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    print(f"rank {rank} trained")
    os.write(2, f"rank {rank} from C\n".encode())
    subprocess.run(["echo", f"a child of rank {rank}"], check=True)
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    print("the launcher", flush=True)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(rank_main, args=(2,), nprocs=2)
