"""Trains in one world of two ranks after the other; in each, rank 1 ends in another way, and rank 0 loses its peer."""

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

STEPS = 50


def train(way: str) -> None:
    """Train until this rank ends in that way, or finds that the other one has."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1000):
        if dist.get_rank() == 1 and step == STEPS:
            end(way)
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def end(way: str) -> None:
    """End as the table of docs/faults.md names it: a signal, or a Python statement."""
    if way.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[way])
        time.sleep(100)
    exec(way, {"sys": sys, "os": os})  # the words of the page


for restart, (way, port) in enumerate(zip(sys.argv[1::2], sys.argv[2::2], strict=True)):
    pids = []
    for rank in range(2):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", TORCHELASTIC_RESTART_COUNT=str(restart))
        if (pid := os.fork()) == 0:
            train(way)
            sys.exit()
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
sys.exit(any(codes))
