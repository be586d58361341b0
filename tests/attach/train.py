"""A job of two ranks that knows nothing of ddpmon. Each step is a line in a file of the rank.

train.py FOLDER WAY [PORT]: WAY is spawn, slurm (srun's variables), or another (the launcher's variables). FOLDER/end
ends the job, and so does the number of steps in the variable STEPS. A step's line has its loss and the weights after
it. FOLDER/nap has rank 1 wait in C code, once FOLDER/napping is there, for as long as somebody holds a lock on it.
"""

import fcntl
import os
import sys
import time
from pathlib import Path

import eager  # noqa: F401
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

STEP_S = float(os.environ.get("STEP_S", "0.02"))
STEPS = int(os.environ.get("STEPS", "0"))


def batches(workers):
    data = [torch.randn(8) for _ in range(4096)]
    while True:
        yield from DataLoader(data, batch_size=4, num_workers=workers)


def join():
    """Join the process group, under a prefix of this attempt's own where torchrun has started the ranks again.

    torch 2.13 gives all attempts torchrun's one store. Without a prefix, whichever rank comes first reads the address
    that the other had before, and fails or hangs.
    """
    if (attempt := os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == "0":
        dist.init_process_group("gloo")
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(attempt, store), rank=rank, world_size=world)


def nap(folder):
    with open(folder / "nap") as file:
        (folder / "napping").touch()
        fcntl.flock(file, fcntl.LOCK_EX)


def train(folder, workers=0):
    join()
    torch.manual_seed(7)
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with open(folder / f"steps-{rank}", "a", buffering=1) as written:
        for step, batch in enumerate(batches(workers), 1):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            time.sleep(STEP_S)
            if rank == 1 and (folder / "nap").exists():
                nap(folder)
            weights = torch.nn.utils.parameters_to_vector(model.parameters()).tolist()
            written.write(f"{loss.item()} {weights}\n")
            ends = torch.tensor([float((folder / "end").exists() or step == STEPS)])
            dist.all_reduce(ends)
            if ends.item():
                break
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()


def spawned(rank, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    train(folder, workers=1)


if __name__ == "__main__":
    if sys.argv[2] == "spawn":
        mp.spawn(spawned, (Path(sys.argv[1]), sys.argv[3]), 2)
    else:
        if os.environ.get("REFUSES") == os.environ.get("RANK"):
            sys.modules["ddpmon"] = None  # no import of it succeeds in this rank
        if sys.argv[2] == "slurm":
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3])
            os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_STEP_NUM_TASKS"])
        train(Path(sys.argv[1]))
