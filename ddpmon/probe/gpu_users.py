"""Finds other processes that use memory of this rank's GPU, from NVML's list and /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ddpmon import proc
from ddpmon.messages import GpuUser
from ddpmon.messages.competitors import MAX_GPU_USERS
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.plain import utf8

SAME_MEMORY_SHARE = 0.1
"""Relative change of a process's GPU memory that is not reported, because each report is a message to the hub."""
ADOPTING = "systemd"
"""Name of a process, besides pid 1, that becomes the parent of orphaned processes."""


def others_on_gpu(nvml: Any, handle: Any, run_id: str) -> list[GpuUser] | None:
    """Return the other processes that compute on a GPU, those with the most memory first.

    Returns None if NVML does not list this process: then it reports pids of another namespace.
    """
    try:
        listed = {one.pid: one.usedGpuMemory for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except nvml.NVMLError:
        return None
    if os.getpid() not in listed:
        return None
    del listed[os.getpid()]
    users = [_described(pid, used or 0, run_id) for pid, used in listed.items()]
    return sorted(users, key=lambda user: -user.used_bytes)[:MAX_GPU_USERS]


def _described(pid: int, used_bytes: int, run_id: str) -> GpuUser:
    environment, parent = proc.environment(pid), proc.parent(pid)
    of_run = bool(run_id) and environment.get("DDPMON_RUN_ID") == run_id
    is_orphan = parent == 1 or (parent > 1 and proc.program(parent) == ADOPTING)
    left_over = is_orphan and not of_run and {"RANK", "MASTER_PORT"} <= environment.keys()
    return GpuUser(pid, utf8(proc.program(pid))[:MAX_NAME], used_bytes, of_run, left_over)


def are_alike(before: Sequence[GpuUser], now: Sequence[GpuUser]) -> bool:
    """Return whether both lists have the same processes with about the same memory."""
    earlier = {user.pid: user.used_bytes for user in before}
    return earlier.keys() == {user.pid for user in now} and all(
        abs(user.used_bytes - earlier[user.pid]) <= SAME_MEMORY_SHARE * earlier[user.pid] for user in now
    )
