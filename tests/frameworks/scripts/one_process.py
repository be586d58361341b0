"""One process without DDP: a plain loop, its model in nn.DataParallel."""

import task
import torch
from torch.utils.data import DataLoader


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(8, 16))
    model = torch.nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in DataLoader(task.items(1), task.BATCH * task.ACCUMULATION, shuffle=True):
        loss = torch.nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    task.leave(task.folder(), 0, model, losses)


if __name__ == "__main__":
    main()
