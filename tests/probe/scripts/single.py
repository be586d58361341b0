"""One process, no DDP: a step is what the optimizer does."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
from torch.utils.data import DataLoader, TensorDataset

import ddpmon

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=16):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ddpmon.log(double=2 * loss.item())
    print(loss.item())
