"""Trains until a file appears; saves a checkpoint when it is told to end."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

stop_file = sys.argv[1]
asked = False


def ask(*_: object) -> None:
    global asked
    asked = True


dist.init_process_group("gloo")
rank = dist.get_rank()
signal.signal(signal.SIGTERM, ask)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in itertools.count(1):
    time.sleep(0.05)  # as slow as can be waited for: a step costs more than it takes
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}", flush=True)
    with open(f"{stop_file}.step.{rank}", "w") as told:
        told.write(f"{step} ")
    over = torch.tensor(float(asked or os.path.exists(stop_file)))
    dist.all_reduce(over)
    if over.item():
        break
if not os.path.exists(stop_file):  # a rank was asked to end; this one may be asked a moment later
    with open(f"{stop_file}.{rank}", "w") as checkpoint:
        checkpoint.write(str(step))
dist.barrier()
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
