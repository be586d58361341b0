"""Join and leave the process group, and choose each rank's devices."""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Here:
    """This process's place among the ranks."""

    rank: int
    local_rank: int
    world_size: int
    devices: list[torch.device]
    control: dist.ProcessGroup
    """A gloo group of all ranks, for small messages that must not make a GPU wait. Gradients use another group."""

    @property
    def device(self) -> torch.device:
        return self.devices[0]

    def say(self, *words: object) -> None:
        """Print on rank 0 only: one line instead of one per rank."""
        if self.rank == 0:
            print(*words, flush=True)


@contextmanager
def joined(args: argparse.Namespace, devices_per_rank: int = 1) -> Iterator[Here]:
    """Join the process group inside the block. The backend is NCCL if every rank has its own GPUs, otherwise gloo.

    Delete a DistributedDataParallel model before the block ends, because the model refers to the group. If the model
    were the last owner of the group, the threads of gloo and Python could wait for each other forever.
    """
    torch.manual_seed(args.seed)
    gpus = torch.cuda.device_count()
    if gpus >= devices_per_rank * args.local_world_size:
        first = devices_per_rank * args.local_rank
        devices = [torch.device("cuda", first + i) for i in range(devices_per_rank)]
        torch.cuda.set_device(devices[0])
    else:
        devices = [torch.device("cpu")] * devices_per_rank
    if "OMP_NUM_THREADS" not in os.environ and args.world_size > 1:
        torch.set_num_threads(1)  # torchrun does the same. Otherwise every rank starts a thread for every core.
    _connect(args, devices[0])
    here = Here(args.rank, args.local_rank, args.world_size, devices, dist.new_group(backend="gloo"))
    ranks = "1 rank" if here.world_size == 1 else f"{here.world_size} ranks"
    here.say(f"{ranks} on {'GPUs' if here.device.type == 'cuda' else 'the CPU'}, backend {dist.get_backend()}")
    if gpus and here.device.type == "cpu":
        here.say(f"the {gpus} GPUs here are not used: the ranks need {args.local_world_size * devices_per_rank}")
    yield here
    # All ranks leave together. A rank that left earlier would make ranks fail that still communicate with it.
    dist.barrier()
    dist.destroy_process_group()


def _connect(args: argparse.Namespace, device: torch.device) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = device if device.type == "cuda" else None
    if args.world_size == 1 and "MASTER_ADDR" not in os.environ:
        # A single rank has no peers, so it needs no port, which could be in use.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, device_id=device_id)
        return
    address = os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    port = os.environ.setdefault("MASTER_PORT", "29500")
    if "RANK" not in os.environ and args.rank == 0:
        print(f"rank 0 waits for {args.world_size - 1} more at {address}:{port}", flush=True)
    try:
        dist.init_process_group(backend, rank=args.rank, world_size=args.world_size, device_id=device_id)
    except dist.DistNetworkError as error:
        reason = str(error).splitlines()[0]
        sys.exit(f"rank {args.rank} cannot meet the others (MASTER_ADDR={address} MASTER_PORT={port}): {reason}")


def leave(here: Here, message: str) -> NoReturn:
    """End the script on all ranks, with one line from rank 0. Every rank must call this."""
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(message if here.rank == 0 else 1)


def download_once(here: Here, download: Callable[[], object], what: str) -> None:
    """Let one rank of each machine download a file for all ranks. If a download fails, end the script on all ranks."""
    failure = None
    if here.local_rank == 0:
        socket.setdefaulttimeout(30)  # A network that drops packets would block the download forever.
        try:
            download()
        except (OSError, RuntimeError) as error:
            failure = (str(error).strip() or type(error).__name__).splitlines()[-1]
        finally:
            socket.setdefaulttimeout(None)
    failures: list[str | None] = [None] * here.world_size
    dist.all_gather_object(failures, failure, group=here.control)
    for failure in failures:
        if failure:
            leave(here, f"the download of {what} failed: {failure}")
