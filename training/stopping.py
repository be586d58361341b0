"""Stop without losing work: the ranks agree on a step, rank 0 writes a checkpoint, and the next run continues.

A resumed run ends with the same weights, bit for bit, as one that was never stopped.
"""

import argparse
import os
import pickle
import signal
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from group import Here, leave

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AGREE_EVERY = 5
"""Steps between two checks for a stop signal on any rank. A run stops at most twice as many steps after the signal."""


class Stop:
    """Makes all ranks stop after the same step, even if the stop signal reaches them at different times or reaches only
    one rank.

    A rank that stopped at once when its signal arrived would leave the other ranks waiting for its gradients.
    So the ranks all-reduce the maximum of their stop flags every AGREE_EVERY steps. They read the result at the next
    check: by then it has arrived, and no rank waits.
    """

    def __init__(self, here: Here) -> None:
        self.asked = False
        self._here = here
        self._flag = torch.zeros(1, dtype=torch.int32)
        self._pending: dist.Work | None = None

    def _ask(self, *_: object) -> None:
        self.asked = True

    def agreed(self, step: int) -> bool:
        """Return True if all ranks stop after this step. All ranks get the same answer."""
        if step % AGREE_EVERY:
            return False
        stop = self._result()
        self._flag.fill_(self.asked)
        self._pending = dist.all_reduce(self._flag, dist.ReduceOp.MAX, group=self._here.control, async_op=True)
        return stop

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._result()  # An all-reduce must finish before the process group is destroyed.
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _result(self) -> bool:
        if self._pending is None:
            return False
        self._pending.wait()
        self._pending = None
        return bool(self._flag.item())


def own_process_group(_: int) -> None:
    """Move a DataLoader worker out of its rank's Unix process group. Pass this function to DataLoader as
    worker_init_fn.

    torchrun and Ctrl-C signal whole groups, and a rank whose worker dies of the signal cannot write a checkpoint.
    """
    os.setpgid(0, 0)


def write(
    args: argparse.Namespace,
    here: Here,
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    step: int,
    epochs: int,
    seconds: float,
) -> None:
    """Write the checkpoint. Every rank must call this function.

    Args:
        args: The arguments of the script.
        here: This process's place among the ranks.
        model: The model.
        optimizer: The model's optimizer.
        step: Number of finished steps.
        epochs: Number of finished epochs.
        seconds: Training time so far, in seconds.
    """
    # Weights and optimizer state are equal on all ranks; random number generators are not. BatchNorm's running
    # statistics on rank 0 are enough: DistributedDataParallel broadcasts them before each forward.
    random: list[Any] | None = [None] * here.world_size if here.rank == 0 else None
    dist.gather_object(_random_state(here), random, dst=0, group=here.control)
    if here.rank == 0:
        save_atomically(
            {
                "run": _identity(args),
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "epochs": epochs,
                "seconds": seconds,
                "random": random,
            },
            args.checkpoint,
        )


def read(args: argparse.Namespace, here: Here) -> dict[str, Any] | None:
    """Return the checkpoint to continue from, the same on every rank, or None without one. Every rank calls this.

    Only rank 0 reads the file, so only the machine of rank 0 must have it. A run with the same number of ranks
    continues at the saved step. A run with another number of ranks would have other batches in each step. So it uses
    the saved weights, and repeats the interrupted epoch.
    """
    state: Any = None
    trouble = ""
    if here.rank == 0 and not args.fresh and args.checkpoint.exists():
        try:
            state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
            there, now = state["run"], _identity(args)
            differing = [name for name in now if there.get(name) != now[name] and name != "world_size"]
            if differing:
                what = ", ".join(f"{name} {there.get(name)} (here {now[name]})" for name in differing)
                trouble = f"belongs to a run with {what}"
        except (OSError, RuntimeError, EOFError, KeyError, TypeError, AttributeError, pickle.UnpicklingError):
            trouble = "is not a readable checkpoint"
    answer = [state, trouble]
    dist.broadcast_object_list(answer, src=0, group=here.control)
    state, trouble = answer
    if trouble:
        leave(here, f"{args.checkpoint} {trouble}: start over with --fresh, or keep it and give --checkpoint PATH")
    return state


def is_of(state: dict[str, Any], here: Here) -> bool:
    """Return True if the checkpoint is of a run with the same number of ranks, so that training can continue at its
    step.
    """
    return bool(state["run"]["world_size"] == here.world_size)


def restore(state: dict[str, Any], model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Restore weights and optimizer state, but keep the learning rate, which grows with the number of ranks."""
    model.module.load_state_dict(state["model"])
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state["optimizer"])
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def restore_random(state: dict[str, Any], here: Here) -> None:
    """Restore this rank's random number generators. Call this last: building a model or loading a batch uses them."""
    cpu, cuda = state["random"][here.rank]
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda, here.device)


def save_atomically(what: object, path: Path) -> None:
    """Save with torch.save so that an interruption leaves the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        torch.save(what, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _random_state(here: Here) -> tuple[torch.Tensor, torch.Tensor | None]:
    cuda = torch.cuda.get_rng_state(here.device) if here.device.type == "cuda" else None
    return torch.get_rng_state(), cuda


def _identity(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that must be equal to resume. With another batch size, for example, the saved step would be
    at another place in the data."""
    names = ("world_size", "batch_size", "seed", "lr", "dataset", "image_size")
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
