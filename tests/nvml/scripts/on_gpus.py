"""Ranks that train on the CPU and say that they train on GPUs, until the file of the first argument exists.

CUDA counts the GPUs in the opposite order of NVML, as under CUDA_VISIBLE_DEVICES=1,0: rank 0 is on NVML's GPU 1.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe import arm

dist.init_process_group("gloo")
rank = dist.get_rank()
uuid = f"0000000{1 - rank}-1111-2222-3333-444444444444"
torch.cuda.get_device_properties = lambda _index: SimpleNamespace(uuid=uuid)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
identity = arm._listener.identity
identity.set_facts(device=f"cuda:{rank}", device_name="NVIDIA H100 80GB HBM3", gpu=uuid)
identity.cuda_device = rank
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ends = torch.zeros(1)
while not ends:
    ends = torch.tensor([float(Path(sys.argv[1]).exists())])
    dist.broadcast(ends, 0)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
dist.barrier()
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
