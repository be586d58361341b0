"""A few hundred short steps over gloo.

LATE names ranks whose data takes longer ("2 3"), WEIGHTS where 0 saves them.

With ALIKE, all ranks train on the same data, so that the losses of a step are equal.
"""

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS = int(os.environ.get("STEPS", "100000"))
WORK_S = 0.02
LATE_S = float(os.environ.get("LATE_MS", "40")) / 1e3


class Data(Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if os.environ["RANK"] in os.environ.get("LATE", "").split():
            time.sleep(LATE_S)
        own = 0 if os.environ.get("ALIKE") else int(os.environ["RANK"])
        return torch.full((8,), float(index % 7) + own)


torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for batch in DataLoader(Data(), batch_size=1):
    time.sleep(WORK_S)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
if os.environ.get("WEIGHTS") and dist.get_rank() == 0:
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    Path(os.environ["WEIGHTS"]).write_bytes(weights.numpy().tobytes())
dist.barrier()
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
