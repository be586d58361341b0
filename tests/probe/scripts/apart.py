"""Several ranks whose weights differ, meant or not: `apart.py MODE --save PATH`, on two ranks."""

import argparse
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 11


def net():
    torch.manual_seed(0)
    return nn.Linear(16, 4)


def train(model, optimizer, after_backward=None, after_step=None):
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        loss = model(torch.randn(8, 16, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if after_backward:
            after_backward(model, loss)
        optimizer.step()
        if after_step:
            after_step()
    return model


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def post_local_sgd():
    """PyTorch's: after two steps each rank is its own group, and weights are averaged every eighth step."""
    model = DDP(net())
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    state = PostLocalSGDState(process_group=None, subgroup=groups[dist.get_rank()], start_localSGD_iter=2)
    model.register_comm_hook(state=state, hook=post_localSGD_hook)
    return train(model, PostLocalSGDOptimizer(sgd(model), PeriodicModelAverager(period=8, warmup_steps=2)))


def accelerates_local_sgd():
    """Accelerate's, around a model that it wraps in DDP."""
    from accelerate import Accelerator
    from accelerate.local_sgd import LocalSGD

    accelerator = Accelerator(cpu=True)
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=8, enabled=True) as local:
        return train(model, optimizer, after_step=local.step)


def independent():
    """DDP is forgotten; the loss is averaged, as for a log."""
    model = net()

    def log(_model, loss):
        dist.all_reduce(loss.detach())
        dist.barrier()

    return train(model, sgd(model), log)


def reduced_by_hand():
    """The twin of that: gradients are reduced without DDP, after a first message from rank to rank."""
    model = net()
    other, received = 1 - dist.get_rank(), torch.zeros(1)
    messages = [dist.P2POp(dist.isend, torch.ones(1), other), dist.P2POp(dist.irecv, received, other)]
    for message in dist.batch_isend_irecv(messages):
        message.wait()
    assert received == 1

    def reduce(model, _loss):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    return train(model, sgd(model), reduce)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", type=lambda name: globals()[name])
    parser.add_argument("--save")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = args.mode()
    if args.save:
        torch.save(model.state_dict(), f"{args.save}.{dist.get_rank()}")
    dist.barrier()
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
