"""Trains one small model in several ways and saves what comes out, for a comparison bit by bit."""

import argparse
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

WIDTH = 96


def make(bucket_cap_mb=0.06, **options) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket_cap_mb, **options)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, optimizer, *, set_to_none: bool = True, steps: int = 8, accumulate: int = 1) -> None:
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        for part in range(accumulate):
            model.require_backward_grad_sync = part == accumulate - 1
            model(torch.randn(8, WIDTH, generator=generator)).square().mean().backward()
        optimizer.step()


def trained(hook=lambda model: None, options=(), how=()):
    """Train a model that has a hook. options: of the model; how: of `train`."""
    model, optimizer = make(**dict(options))
    hook(model)
    train(model, optimizer, **dict(how))
    return model


def compressed(model):
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def builtin(model):
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)


def power_sgd(model):
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=3, min_compression_rate=1)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def double():
    torch.set_default_dtype(torch.float64)
    try:
        return trained()
    finally:
        torch.set_default_dtype(torch.float32)


def late_hook():
    """Registered after the first step."""
    model, optimizer = make()
    train(model, optimizer, steps=1)
    compressed(model)
    train(model, optimizer)
    return model


def uneven():
    """Ranks with fewer inputs join early; gradients are divided by those that are left."""
    model, optimizer = make()
    with Join([model], divide_by_initial_world_size=False):
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(5 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            model(torch.randn(8, WIDTH, generator=generator)).square().mean().backward()
            optimizer.step()
    return model


VIEW = {"gradient_as_bucket_view": True}
WAYS = {
    "plain": trained,
    "view": partial(trained, options=VIEW),
    # Gradients stay where they are: DDP divides them in place.
    "view_kept": partial(trained, options=VIEW, how={"set_to_none": False}),
    "view_accumulated": partial(trained, options=VIEW, how={"set_to_none": False, "accumulate": 3}),
    "double": double,
    "static_graph": partial(trained, options={"static_graph": True}),
    "fp16": partial(trained, compressed),
    # One bucket: with several, its callbacks issue collectives in any order, which gloo does not survive.
    "power_sgd": partial(trained, power_sgd, {"bucket_cap_mb": 25}),
    "late_hook": late_hook,
    "builtin": partial(trained, builtin),
    "uneven": uneven,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    save = parser.parse_args().save
    dist.init_process_group("gloo")
    for name, way in WAYS.items():
        model = way()
        torch.save(model.module.state_dict(), f"{save}.{name}.{dist.get_rank()}")
    dist.barrier()
    del model  # else gloo's thread and this one may wait for each other for ever
    dist.destroy_process_group()
