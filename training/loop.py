"""The training loop that the scripts share, for DistributedDataParallel models. A stop signal loses no work.

The two calls of ddpmon are optional: the dashboard also shows a loop without these calls. They add the total number of
steps and the values that the script logs. If ddpmon is not installed, the calls do nothing.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import stopping
from faults import Faults
from group import Here, leave

try:
    import ddpmon
except ImportError:

    class ddpmon:  # noqa: N801  replaces the missing module
        step = staticmethod(lambda **_: nullcontext())
        log = staticmethod(lambda **_: None)


@dataclass(frozen=True)
class Trained:
    """The outcome of a training. `finished` is False after a stop; `seconds` includes the time before a stop."""

    finished: bool
    steps: int
    seconds: float

    def __str__(self) -> str:
        return f"trained {self.steps} step{'s' * (self.steps != 1)} in {self.seconds:.1f} s"


def loader_for(args: argparse.Namespace, dataset: Dataset[Any]) -> DataLoader[Any]:
    """Return a loader of this rank's share of a dataset, shuffled differently in each epoch.

    drop_last gives all ranks the same number of steps. Workers are persistent. Forking them at each epoch could
    deadlock, because the process group has threads.
    """
    return DataLoader(
        Faults.of(args).dataset(dataset),
        batch_size=args.batch_size,
        sampler=DistributedSampler(dataset, seed=args.seed),
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        drop_last=True,
    )


def accuracy_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of samples whose largest output is the output of their target class."""
    return (outputs.argmax(1) == targets).float().mean()


def train(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    args: argparse.Namespace,
    here: Here,
    *,
    accuracy_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    print_every: int | None = 100,
) -> Trained:
    """Train for args.epochs epochs, from the checkpoint of a stopped run if there is one.

    Args:
        model: The model, on this rank's devices.
        optimizer: Updates the model's parameters.
        loader: Made by `loader_for`.
        loss_of: Returns the loss, a scalar, from outputs and targets.
        args: The arguments of the script.
        here: This process's place among the ranks.
        accuracy_of: Returns the accuracy, a scalar, from outputs and targets.
        print_every: Steps between two lines that rank 0 prints about its own batches; None prints a line per epoch.
    """
    if not len(loader):
        leave(here, f"--batch-size {args.batch_size} is larger than a rank's share of the data")
    faults = Faults.of(args)
    faults.inject(model.module, optimizer)
    torch.manual_seed(args.seed + here.rank)  # The model is initialised. From here on, ranks draw different numbers.
    loader.generator = torch.Generator().manual_seed(args.seed + here.rank)  # Workers also draw different numbers.
    loader.worker_init_fn = stopping.own_process_group
    every = print_every or len(loader)
    total = args.epochs * len(loader)
    step, before_s = 0, 0.0

    state = stopping.read(args, here)
    if state:
        stopping.restore(state, model, optimizer)
        before_s = state["seconds"]
        if stopping.is_of(state, here):
            step = state["step"]
            here.say(f"continues after step {step} of {total}, from {args.checkpoint}")
        else:
            ranks, step = state["run"]["world_size"], state["epochs"] * len(loader)
            state = None  # The saved random number generators belong to other ranks.
            here.say(f"continues at step {step} of {total} with the weights of {ranks} ranks, from {args.checkpoint}")

    ahead = total - step  # Number of steps in this run, without the steps before the stop.
    started = time.perf_counter()
    sums: dict[str, torch.Tensor | float] = defaultdict(float)
    summed = 0
    model.train()
    with stopping.Stop(here) as stop:
        for epoch in range(step // len(loader), args.epochs):
            done = step % len(loader)
            batches = start_epoch(loader, epoch, done)
            if state:
                stopping.restore_random(state, here)
                state = None
            for _ in range(done, len(loader)):
                step += 1
                with ddpmon.step(total=ahead):
                    inputs, targets = next(batches)
                    faults.between_phases(step)
                    outputs = model(inputs.to(here.devices[0], non_blocking=True))
                    targets = targets.to(here.devices[-1], non_blocking=True)
                    loss = loss_of(outputs, targets)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                # The sums stay on the device, because reading a sum at each step would make the CPU wait for a GPU.
                sums["loss"] += loss.detach()
                if accuracy_of:
                    sums["accuracy"] += accuracy_of(outputs.detach(), targets)
                summed += 1
                if step % every == 0:
                    means = {name: float(value) / summed for name, value in sums.items()}
                    ddpmon.log(**means)
                    words = "  ".join(f"{name} {mean:.4f}" for name, mean in means.items())
                    here.say(f"epoch {epoch + 1}/{args.epochs}  step {step}/{total}  {words}")
                    sums.clear()
                    summed = 0
                if stop.agreed(step) and step < total:
                    seconds = before_s + time.perf_counter() - started
                    stopping.write(args, here, model, optimizer, step, step // len(loader), seconds)
                    here.say(f"stopped after step {step} of {total}, in {args.checkpoint}: run again to continue")
                    return Trained(False, step, seconds)
    if here.rank == 0:
        if args.save:
            stopping.save_atomically(model.module.state_dict(), args.save)
        args.checkpoint.unlink(missing_ok=True)  # The next run starts from the beginning.
    return Trained(True, step, before_s + time.perf_counter() - started)


def start_epoch(loader: DataLoader, epoch: int, done: int) -> Iterator[list[torch.Tensor]]:
    """Return the batches of an epoch, without the first `done` batches, which were trained before a stop."""
    loader.sampler.set_epoch(epoch)  # Shuffle differently in each epoch, but equally on all ranks.
    batches = iter(loader)
    for _ in range(done):
        next(batches)
    return batches
