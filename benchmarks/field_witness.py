"""Record what a rank really does, from inside it and without ddpmon: the copies that field_scripts.py runs import this.

It counts the calls of each optimizer's step with torch's own hook, and records their times and those of what a script
does between steps (evaluate, save, start a DataLoader). At the end of the process it writes these and a digest of the
weights as JSON. It also sets the seeds that the script may not set, so that two runs of it are equal.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

FOLDER = Path(os.environ["FIELD_WITNESS"])
SEED = 20
stamps: dict[int, list[float]] = {}
pauses: list[float] = []
optimizers: dict[int, torch.optim.Optimizer] = {}
rank = 0


def stepped(optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
    global rank
    if not optimizers:
        rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
        (FOLDER / f"{rank}.new").write_text(str(os.getpid()))
        (FOLDER / f"{rank}.new").rename(FOLDER / f"{rank}.pid")
    optimizers.setdefault(id(optimizer), optimizer)
    stamps.setdefault(id(optimizer), []).append(time.perf_counter())


def note_pause(owner: object, name: str) -> None:
    """Record calls of a function as pauses of the training."""
    function: Callable = getattr(owner, name)

    @functools.wraps(function)
    def noting(*args: object, **kwargs: object) -> object:
        pauses.append(time.perf_counter())
        return function(*args, **kwargs)

    setattr(owner, name, noting)


def digest() -> str:
    """Return a digest of all weights that were ever optimized, in the optimizers' order; for a sharded weight, of this
    rank's part.
    """
    state = hashlib.sha256()
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            for weight in group["params"]:
                part = weight.detach()
                part = part.to_local() if hasattr(part, "to_local") else part
                state.update(part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def finish() -> None:
    if optimizers and not (FOLDER / f"{rank}.json").exists():
        told = {"rank": rank, "weights": digest(), "stamps": list(stamps.values()), "pauses": pauses}
        (FOLDER / f"{rank}.json").write_text(json.dumps(told))


def arm() -> None:
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the scripts use the old generator
    torch.manual_seed(SEED)
    register_optimizer_step_post_hook(stepped)
    note_pause(torch.nn.Module, "eval")
    note_pause(torch, "save")
    note_pause(_BaseDataLoaderIter, "_reset")
    note_pause(DataLoader, "_get_iterator")
    atexit.register(finish)
    util.Finalize(None, finish, exitpriority=100)  # Children of torch.multiprocessing do not run atexit functions.


arm()
