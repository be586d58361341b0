"""Trains some steps; then each rank leaves in its own way, given by rank."""

import os
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

steps, *ways = sys.argv[1:]
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher sends it once the first rank has left
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(steps)):
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
way = ways[dist.get_rank()]
if way == "os._exit":
    os._exit(0)
elif way == "os.execv":
    os.execv("/bin/true", ["true"])
else:
    os.kill(os.getpid(), signal.Signals[way])
