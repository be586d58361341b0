"""Fails in the first attempt after five steps, and in the second one after ten."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    if step == 4 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("the first attempt fails")
raise ValueError("wrong on purpose, password=hunter2")
