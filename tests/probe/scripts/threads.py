"""Train outside the main thread, as Ray Train's workers do: `threads.py MODE --save PATH`, on two ranks."""

import argparse
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 6


def net():
    torch.manual_seed(0)
    return nn.Linear(16, 4)


def train(model, begun=None, go_on=None):
    """begun: set once a step was made. go_on: waited for then."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        loss = model(torch.randn(8, 16, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if begun:
            begun.set()
            go_on.wait(60)


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


def one_after_the_other():
    """Main wraps the model, one thread trains it, and once that has ended another one."""
    model = DDP(net())
    for _ in range(2):
        in_thread(train, model).join()
    return model


def two_at_once():
    """The second one trains while the first one does."""
    models = [DDP(net(), process_group=dist.new_group([0, 1])) for _ in range(2)]
    begun, go_on = threading.Event(), threading.Event()
    first = in_thread(train, models[0], begun, go_on)
    begun.wait(60)
    in_thread(train, models[1]).join()
    go_on.set()
    first.join()
    return nn.ModuleList(models)


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
