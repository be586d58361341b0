"""Collects the facts that identify this rank, for its Hello message."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace

from ddpmon import tasks
from ddpmon.messages import MAX_NAME, PROTOCOL, STAGE_CONNECTED, GpuUser, Hello
from ddpmon.messages.competitors import MAX_GPU_ERRORS

SAME_MEMORY_SHARE = 0.1
"""Relative change of a process's GPU memory that is not reported, because each report is a message to the hub."""
NOTES = 32
NOTE_CHARACTERS = 300


def _number(name: str, otherwise: int) -> int:
    """Return an environment variable as a whole number, or `otherwise` if it is not one."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else otherwise


class Identity:
    """Facts about this rank. `version` rises with each change, so that the sender knows when to send a new Hello."""

    def __init__(self, run_id: str) -> None:
        self.version = 1
        self._changing = threading.RLock()
        """Guards `facts` against changes by two threads. Reentrant, because a signal handler may interrupt a change."""
        self.cuda_device: int | None = None
        rank = _number("RANK", 0)
        self.facts = Hello(
            protocol=PROTOCOL,
            run_id=run_id,
            rank=rank,
            local_rank=_number("LOCAL_RANK", rank),
            world_size=max(_number("WORLD_SIZE", 1), rank + 1),
            node_rank=_number("GROUP_RANK", 0),
            host=socket.gethostname(),
            pid=os.getpid(),
            stage=STAGE_CONNECTED,
            restart=_number("TORCHELASTIC_RESTART_COUNT", 0),
            torch_version=str(torch.__version__),
            cores=len(os.sched_getaffinity(0)),
            began_us=time.monotonic_ns() // 1000,
        )
        """The message that tells the hub who this rank is. It is replaced, so that readers never see half a change."""

    def reach_stage(self, stage: int) -> None:
        """Record that the rank has reached a stage; an earlier stage changes nothing."""
        with self._changing:
            if stage > self.facts.stage:
                self.set_facts(stage=stage)

    def add_note(self, text: str) -> bool:
        """Add a note about something that is not measured. Return False if the note exists, or NOTES notes do."""
        text = text[:NOTE_CHARACTERS]
        with self._changing:
            notes = self.facts.notes
            if text in notes or len(notes) >= NOTES:
                return False
            self.set_facts(notes=[*notes, text])
            return True

    def set_missing(self, quantity: str, reason: str) -> None:
        """Set the reason why BUCKETS, GPU_COUNTERS or STEPS is not measured, and add it as a note. "" removes both."""
        reason = reason[:NOTE_CHARACTERS]
        with self._changing:
            missing, notes = dict(self.facts.missing), list(self.facts.notes)
            earlier = missing.pop(quantity, "")
            if reason == earlier:
                return
            if earlier:
                notes.remove(earlier)
            if reason:
                missing[quantity] = reason
                notes.append(reason)
            self.set_facts(missing=missing, notes=notes)

    def add_gpu_error(self, error: str) -> None:
        """Add a critical error of this rank's GPU, if it is new and there are fewer than MAX_GPU_ERRORS."""
        with self._changing:
            errors = self.facts.gpu_errors
            if error not in errors and len(errors) < MAX_GPU_ERRORS:
                self.set_facts(gpu_errors=[*errors, error[:MAX_NAME]])

    def set_gpu_users(self, users: list[GpuUser] | None) -> None:
        """Set the other processes that use memory of this rank's GPU. None means unknown, and changes nothing."""
        if users is not None and not _are_alike(self.facts.gpu_users, users):
            self.set_facts(gpu_users=users)

    def take_group(self) -> None:
        """Set rank and world size from the process group, which is now initialized."""
        rank, size = dist.get_rank(), dist.get_world_size()
        task = tasks.task(os.environ)
        if task is not None and (task.rank, task.size) != (rank, size):
            task = None  # It describes the launcher's task, not this rank's.
        self.set_facts(
            rank=rank,
            world_size=size,
            local_rank=_number("LOCAL_RANK", rank if task is None or task.local_rank is None else task.local_rank),
            node_rank=_number("GROUP_RANK", (task.node if task else None) or 0),
            backend=str(dist.get_backend()),
        )

    def take_model(self, model: Any, gradient_bytes: int, buffer_bytes: int) -> None:
        """Add a DDP model. Its device becomes the rank's device; the sizes of several models are summed."""
        self.take_device(next((p.device for p in model.parameters()), torch.device("cpu")))
        facts = self.facts
        self.set_facts(
            parameters=facts.parameters + sum(p.numel() for p in model.parameters()),
            gradient_bytes=facts.gradient_bytes + gradient_bytes,
            buffer_bytes=facts.buffer_bytes + buffer_bytes,
            compute_threads=torch.get_num_threads(),
        )

    def take_device(self, device: torch.device) -> None:
        """Set this rank's device to that of a model's parameters."""
        changes = {"device": str(device)}
        if device.type == "cuda":
            self.cuda_device = device.index
            changes["device_name"] = torch.cuda.get_device_name(device)
            changes["gpu"] = self.cuda_uuid() or ""
        self.set_facts(**changes)

    def set_parallelism(self, parallelism: str, unmeasured: list[str], device: torch.device | None) -> None:
        """Set how this process trains, and which phases are not measured.

        Args:
            parallelism: The kinds of wrappers in use.
            unmeasured: Names of phases that are not measured.
            device: GPU of the optimizer's parameters; None if they are on no GPU, or it is unknown.

        """
        if device is not None and self.cuda_device is None:
            self.take_device(device)
        self.set_facts(parallelism=parallelism, unmeasured=unmeasured)

    def cuda_uuid(self) -> str | None:
        """Return the UUID of this rank's GPU. Its index would not identify it, as CUDA_VISIBLE_DEVICES changes that."""
        return None if self.cuda_device is None else str(torch.cuda.get_device_properties(self.cuda_device).uuid)

    def set_facts(self, **facts: Any) -> None:
        """Set facts by field name of `Hello`. If any of them differs, the sender sends a new Hello."""
        with self._changing:
            changed = replace(self.facts, **facts)
            if changed != self.facts:
                self.facts = changed
                self.version += 1


def _are_alike(before: Sequence[GpuUser], now: Sequence[GpuUser]) -> bool:
    """Return whether two lists have the same processes with about the same GPU memory."""
    earlier = {user.pid: user.used_bytes for user in before}
    return earlier.keys() == {user.pid for user in now} and all(
        abs(user.used_bytes - earlier[user.pid]) <= SAME_MEMORY_SHARE * earlier[user.pid] for user in now
    )
