"""Shared parts of the scripts: a few batches made from a seed, and the facts that each rank writes for the test."""

from __future__ import annotations

# ruff: noqa: E402
import atexit
import gc

gc.disable()  # what torch and trainers import takes a third less, and there is no garbage to speak of
atexit.register(gc.freeze)  # else all of it is looked through for garbage at the exit: half a second and more

import argparse
import hashlib
import json
from pathlib import Path

import torch

STEPS = 8
ACCUMULATION = 2
BATCH = 4
WORKERS = 1
"""Processes beside each rank that load its batches: they are no ranks."""


def folder() -> Path:
    """Return where to leave the facts: the script's one argument."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    return parser.parse_known_args()[0].folder


def items(world_size: int) -> torch.Tensor:
    """Samples for STEPS steps of ACCUMULATION batches on each rank."""
    return torch.randn(STEPS * ACCUMULATION * BATCH * world_size, 16, generator=torch.Generator().manual_seed(1))


def leave(where: Path, rank: int, model: torch.nn.Module, losses: list[float]) -> None:
    """Write what this rank ended with: a digest of every bit of its weights, and the losses of its steps."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    facts = {"weights": digest.hexdigest(), "losses": losses}
    (where / f"rank-{rank}.json").write_text(json.dumps(facts))


def part() -> None:
    """Leave the process group together: short gloo programs sometimes abort at exit otherwise, bare ones too."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
