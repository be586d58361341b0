"""Ways of stepping: closures, sharded optimizers, rollouts, teachers, backward inside backward."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from ways_common import BATCH, batches, net, report, way

STEPS = 4
DELAY_S = 0.03
"""Extra seconds of rank 1 for one chunk or one move."""


def loss_of(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


@way
def lbfgs_long():
    """Eight evaluations a step, and one before it."""
    model = DDP(net())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=8)
    batch = next(iter(batches(1)))

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    for _ in range(STEPS):
        closure()
        optimizer.step(closure)
    return model


def chunk_gradients(model, chunks):
    """The loss of all chunks' outputs, computed without a graph, and the outputs, whose gradients are wanted."""
    with torch.no_grad():
        outputs = torch.cat([model(chunk) for chunk in chunks])
    outputs.requires_grad_()
    return outputs, (outputs @ outputs.T).softmax(1).diagonal()


@way
def gradient_cache():
    """Embeds in chunks without gradients, then once more with those of the loss."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, _ in batches(STEPS):
        chunks = x.split(2)
        outputs, each = chunk_gradients(model, chunks)
        loss = each.mean()
        loss.backward()
        losses.append(loss.item())
        for chunk, gradient in zip(chunks, outputs.grad.split(2), strict=True):
            (model(chunk) * gradient).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    report(losses)
    return model


class Late(nn.Module):
    """A model whose forward takes longer on rank 1."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        if dist.get_rank() == 1:
            time.sleep(DELAY_S)
        return self.net(x)


@way
def cached_loss():
    """The same inside of loss.backward(): forward and backward of the chunks run in a hook of the loss."""
    model = DDP(Late())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, _ in batches(STEPS):
        chunks = x.split(4)
        outputs, each = chunk_gradients(model, chunks)
        for part in each.split(4):  # the loss in chunks of its own
            (part.sum() / len(x)).backward(retain_graph=True)
        gradient, loss = outputs.grad, each.mean().detach().requires_grad_()

        def hook(scale, chunks=chunks, gradient=gradient):
            with torch.enable_grad():
                for chunk, part in zip(chunks, gradient.split(4), strict=True):
                    (model(chunk) * part * scale).sum().backward()

        loss.register_hook(hook)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses)
    return model


@way
def optimizer_in_backward():
    """One optimizer a parameter, each of which steps as soon as DDP has accumulated its gradient."""
    model = DDP(net())
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    hooks = [parameter.register_post_accumulate_grad_hook(hook) for parameter in model.parameters()]
    for batch in batches(STEPS):
        loss_of(model, batch).backward()
    for one in hooks:
        one.remove()  # else the optimizers live on
    return model


@way
def zero():
    """Optimizer states are sharded; four batches a step, and every backward synchronises."""
    model = DDP(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    data, losses = batches(4 * STEPS), []
    for _ in range(STEPS):
        parts = []
        for _ in range(4):
            loss = loss_of(model, next(data)) / 4
            loss.backward()
            parts.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(parts))
    report(losses)
    return model


@way
def without_optimizer():
    model = DDP(net())
    for batch in batches(STEPS):
        loss_of(model, batch).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad = None
    return model


@way
def teacher():
    """An average of the weights, in evaluation mode; what a step has of it is the step's."""
    model, average = DDP(net()), DDP(Late())
    average.requires_grad_(False).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    items = TensorDataset(*next(iter(batches(1))))
    for batch in DataLoader(TensorDataset(*(tensor.repeat(STEPS, 1) for tensor in items.tensors[:1])), BATCH):
        with torch.no_grad():
            wanted = average(batch[0])
        loss = nn.functional.mse_loss(model(batch[0]), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@way
def rollouts():
    """PPO makes moves without gradients, on rank 1 in a slow environment, then some updates."""
    model = DDP(net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for batch in batches(STEPS):
        for _ in range(3):
            with torch.no_grad():
                model(batch[0])
            if dist.get_rank() == 1:
                time.sleep(DELAY_S)
        for _ in range(2):
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


class Graphs:
    """A batch of 4 graphs, as PyG makes it."""

    num_graphs = 4

    def __init__(self, items):
        self.x = torch.stack(items)
        self.edge_index = torch.arange(2 * len(items)).view(2, -1) % len(items)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, edge_index):
        return self.net(x + x[edge_index[0]])


@way
def graphs():
    model = DDP(Convolution())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(next(iter(batches(1)))[0].repeat(20, 1), 40, collate_fn=Graphs):
        optimizer.zero_grad()
        model(batch.x, batch.edge_index).square().mean().backward()
        optimizer.step()
    return model


@way
def join_uneven():
    """Two epochs, in which rank 1 has two updates of two batches more."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with Join([model]):
            for number, batch in enumerate(batches(4 + 4 * dist.get_rank())):
                loss_of(model, batch).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
    return model


@way
def evaluation_by_loader():
    """Without model.eval(): unlike for rollouts, a loader is gone through, and nothing is trained on its batches."""
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = next(iter(batches(1)))
    loader = DataLoader(TensorDataset(x.repeat(3, 1), y.repeat(3)), BATCH)
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        with torch.no_grad():
            for batch in loader:
                loss_of(model, batch)
    return model
