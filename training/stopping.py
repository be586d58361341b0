"""Stopping without losing anything: the ranks agree on a step, rank 0 writes a checkpoint, the next run goes on.

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
"""Steps between two looks at whether any rank was asked to stop; a stop takes at most twice as many."""


class Stop:
    """Turns a signal, which reaches the ranks at different moments or only one of them, into one step.

    A rank that left at the step at which its own signal arrived would leave the others waiting for its gradients.
    So every few steps the ranks take the maximum of their "was I asked to stop". The result is read at the next
    look: by then it has long arrived, and nobody waits for it.
    """

    def __init__(self, here: Here) -> None:
        self.asked = False
        self._here = here
        self._flag = torch.zeros(1, dtype=torch.int32)
        self._pending: dist.Work | None = None

    def _ask(self, *_: object) -> None:
        self.asked = True

    def agreed(self, step: int) -> bool:
        """Whether all ranks stop after this step; the same answer on all of them."""
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
            self._result()  # nothing of ours is under way any more when the group is left
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _result(self) -> bool:
        if self._pending is None:
            return False
        self._pending.wait()
        self._pending = None
        return bool(self._flag.item())


def own_process_group(_: int) -> None:
    """For DataLoader(worker_init_fn=…): a worker leaves the process group of its rank.

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
    """Write the checkpoint; every rank calls this. step, epochs: finished; seconds: training took so far."""
    # Weights and optimizer are equal on all ranks, random numbers are not. Of BatchNorm's running statistics
    # rank 0's count: DistributedDataParallel hands them to the others before each forward.
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
    """The checkpoint to go on from, the same on every rank, or None. Every rank calls this.

    Rank 0 alone reads it: its machine is the only one that must have the file. A run of as many ranks goes on at the
    step; one of another number of ranks, whose steps are others, with the weights and at the beginning of the epoch.
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
                trouble = f"is of a run with {what}"
        except (OSError, RuntimeError, EOFError, KeyError, TypeError, AttributeError, pickle.UnpicklingError):
            trouble = "cannot be read as a checkpoint"
    answer = [state, trouble]
    dist.broadcast_object_list(answer, src=0, group=here.control)
    state, trouble = answer
    if trouble:
        leave(here, f"{args.checkpoint} {trouble}: --fresh starts anew, --checkpoint PATH keeps it")
    return state


def is_of(state: dict[str, Any], here: Here) -> bool:
    """Whether a checkpoint was written by as many ranks: then all goes on as if it had not stopped."""
    return bool(state["run"]["world_size"] == here.world_size)


def restore(state: dict[str, Any], model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Put the weights and the optimizer's state of a checkpoint back; the rate stays, which grows with the ranks."""
    model.module.load_state_dict(state["model"])
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state["optimizer"])
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def restore_random(state: dict[str, Any], here: Here) -> None:
    """Put this rank's random numbers back; last, since building a model or loading a batch draws some."""
    cpu, cuda = state["random"][here.rank]
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda, here.device)


def save_atomically(what: object, path: Path) -> None:
    """torch.save that leaves the old file or the new one, never half of one."""
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
    """What makes it the same run: with another world or batch size, step 700 is another place in the data."""
    names = ("world_size", "batch_size", "seed", "lr", "dataset", "image_size")
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
