"""Reads from torch's own counters how far this rank's process groups have come, without counting the script's calls.

torch keeps a sequence number per process group, and its Flight Recorder keeps the last collectives of all groups. Both
are private to torch, so anything that is missing or has another form counts as unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from ddpmon.messages import Collective

COLLECTIVE_FUNCTIONS = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
"""Functions of torch.distributed in which ranks wait for each other. This version of torch may lack some of them."""

MESSAGES = ("send", "recv", "batch_isend_irecv")
"""Functions of torch.distributed that send messages; not isend and irecv, which `P2POp` compares by identity."""
MAX_GROUPS = 64
MAX_TENSORS = 8
"""Largest number of tensors of a collective to describe."""


def group_position(group: Any) -> tuple[str, int]:
    """Return a process group's name, which is the same on all its ranks, and the number of its last collective.

    Returns ("", 0) if they are unknown.
    """
    try:
        return str(group.group_name), int(group._get_sequence_number_for_group())
    except Exception:
        return "", 0


def last_sequence_numbers() -> dict[str, int]:
    """Return the number of the last collective in each of this rank's process groups, by the group's name."""
    try:
        groups = list(dist.distributed_c10d._world.pg_names)[:MAX_GROUPS]
    except AttributeError:
        return {}
    return {name: number for name, number in map(group_position, groups) if name}


def timeouts_s(name: str = "") -> set[float]:
    """Return the timeouts after which torch ends the run, in each of this rank's process groups; empty if unknown.

    The timeouts are read at each call, because a script can change them. name: the only group to read; "" for all.
    """
    try:
        groups = list(dist.distributed_c10d._world.pg_names.items())[:MAX_GROUPS]
        return {seconds for group, its_name in groups if name in {"", its_name} for seconds in _timeouts_s(group)}
    except Exception:
        return set()


def _timeouts_s(group: Any) -> Iterator[float]:
    """Yield the timeout of each backend of a process group."""
    for device in group._device_types:
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend
        if type(backend).__name__ != "ProcessGroupNCCL" or _nccl_ends_runs():
            yield backend.options._timeout.total_seconds()


def _nccl_ends_runs() -> bool:
    """Return whether a NCCL timeout ends the run; NCCL's watchdog may be configured to do nothing."""
    settings = {
        name: os.environ.get(f"TORCH_{name}", os.environ.get(name))
        for name in ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT")
    }
    return settings["NCCL_ASYNC_ERROR_HANDLING"] != "0" or settings["NCCL_BLOCKING_WAIT"] == "1"


class _Entry(msgspec.Struct):
    """Fields of a Flight Recorder entry that ddpmon uses."""

    profiling_name: str
    collective_seq_id: int
    process_group: tuple[str, str]
    retired: bool
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_sizes: list[list[int]] = []
    output_dtypes: list[str] = []

    def collective(self) -> Collective:
        name = self.profiling_name.rpartition(":")[2]
        inputs = _tensors(self.input_sizes, self.input_dtypes)
        outputs = _tensors(self.output_sizes, self.output_dtypes)
        group, number = self.process_group[0], self.collective_seq_id
        return Collective(name, group, number, name, inputs, outputs, is_open=not self.retired)


def _tensors(shapes: list[list[int]], dtypes: list[str]) -> str:
    """Return a description of tensors such as "(8, 1) Float, (3) Long", cut at MAX_TENSORS."""
    words = [f"({', '.join(map(str, shape))}) {dtype}" for shape, dtype in zip(shapes, dtypes, strict=False)]
    return ", ".join(words[:MAX_TENSORS])


class _Dump(msgspec.Struct):
    entries: list[_Entry]


_dump = msgspec.json.Decoder(_Dump)


def unfinished_or_last() -> tuple[Collective | None, bool] | None:
    """Return the oldest collective that this rank is in and True, or the last one it issued and False; None if unknown.

    This stops every thread of the process for about 30 ms if the recorder is full, so call it only on suspicion.
    """
    take = getattr(torch._C, "_distributed_c10d", None)
    take = getattr(take, "_dump_fr_trace_json", None)
    if take is None or not dist.is_initialized():
        return None
    try:
        entries = _dump.decode(take()).entries
    except Exception:
        return None
    if not entries:
        return None
    open_ = next((entry for entry in entries if not entry.retired), None)
    entry = open_ or entries[-1]
    return entry.collective(), open_ is not None
