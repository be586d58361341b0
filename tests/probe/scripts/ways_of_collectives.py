"""Collectives of the script's own, and torch.compile."""

import datetime as dt
import functools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel as DDP
from ways_common import batches, compiled_s, net, train, way


def compiled(made):
    """A way of training what `made` makes, which keeps how long Dynamo says that it compiled."""

    @functools.wraps(made)
    def trained():
        torch._dynamo.reset()
        before = compiling_s()
        model = train(made())
        compiled_s[made.__name__] = compiling_s() - before
        return model

    return way(trained)


def compiling_s():
    return sum(torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", ()))


@compiled
def compiled_around():
    return torch.compile(DDP(net()), backend="aot_eager")


@compiled
def compiled_inside():
    return DDP(torch.compile(net(), backend="eager"))  # The other ways trace the backward pass, too.


@way
def inside_collectives():
    """The script's own collectives, blocking and not, and a compiled one."""
    model = train(DDP(net()), data=batches(4))
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    dist.barrier()
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, {"rank": dist.get_rank()})
    values = [torch.zeros(2) for _ in gathered]
    dist.all_gather(values, torch.full((2,), float(dist.get_rank())))
    sys.stdout.write(f"{gathered} {values} {inspectable()}\n")
    return train(model, data=batches(4))


class Normalised(torch.autograd.Function):
    """The collectives of SyncBatchNorm on a GPU, called as it calls them: one in forward, one in backward."""

    @staticmethod
    def forward(ctx, x):
        sums = x.sum(0)
        gathered = torch.empty(dist.get_world_size() * len(sums))
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(gathered, sums, None, async_op=False)
        return x - gathered.view(-1, len(sums)).sum(0) / (len(x) * dist.get_world_size())

    @staticmethod
    def backward(ctx, grad):
        sums = grad.sum(0)
        torch.distributed.all_reduce(sums, torch.distributed.ReduceOp.SUM, None, async_op=False)
        return grad - sums / (len(grad) * dist.get_world_size())


class Centre(nn.Module):
    def forward(self, x):
        return Normalised.apply(x)


@way
def normalised_over_ranks():
    inner = net()
    inner[1] = Centre()
    return train(DDP(inner))


@way
def waits():
    """Collectives that are waited for later: a work, and the tensor of a functional one."""

    def reduced():
        for x, y in batches():
            work = dist.all_reduce(torch.ones(3), async_op=True)
            total = functional.all_reduce(x.mean(0), "sum", dist.group.WORLD)
            centred = x - total / dist.get_world_size()
            work.wait()
            yield centred, y

    return train(DDP(net()), data=reduced())


@way
def compiled_collectives():
    """In a graph of its own: what torch.compile cannot look into would be an error."""

    @torch.compile(backend="aot_eager", fullgraph=True)
    def mean(x):
        dist.all_reduce(x)
        return functional.all_reduce(x, "sum", dist.group.WORLD) / dist.get_world_size()

    torch._dynamo.reset()
    return train(DDP(net()), data=((x - mean(x.mean(0)), y) for x, y in batches()))


class Inherits(dist.Work):
    """A work of the script's own, which has no `wait` of its own."""

    def __init__(self):
        super().__init__()


def inherited_wait():
    try:
        return Inherits().wait(dt.timedelta(milliseconds=10))
    except RuntimeError as error:
        return str(error).splitlines()[0]


def inspectable():
    """A curious script inspects torch's functions."""
    return [
        inherited_wait(),
        dist.all_reduce.__name__,
        dist.barrier.__module__,
        DDP.forward.__qualname__,
        torch.autograd.backward.__doc__[:10],
    ]
