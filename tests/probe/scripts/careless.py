"""Trains for 60 steps and tells ddpmon whatever scripts have been seen to tell it. Needs NumPy, as many scripts do."""

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddpmon

SAMPLES = [np.int64(16), torch.tensor(16), 16.0, -1, 2.5, "many", 10**400, float("nan"), None]
TOTALS = [1000.0, np.int32(60), 0, -3, torch.ones(2), [60], "", float("inf")]
VALUES = [
    None, torch.ones(2), [0.5], "high", object(), 1j, 10**400, torch.tensor(1j),
    np.float32(0.5), torch.full((1,), 0.5, requires_grad=True), True, "0.5",
]  # fmt: skip
NAMES = ["acc", "", "x" * 300, "\ud800", "two\nlines"]

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    with ddpmon.step(samples=SAMPLES[step % len(SAMPLES)], total=TOTALS[step % len(TOTALS)]):
        loss = model(torch.ones(16, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ddpmon.log(**{NAMES[step % len(NAMES)]: VALUES[step % len(VALUES)]})
print("trained to the end", flush=True)
dist.barrier()
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
