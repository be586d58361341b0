"""The machine: GPUs and their counters, cores against ranks, shared memory, what other programs may look at."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpmon.analysis.words import counted
from ddpmon.doctor.check import Check, note, ok, problem
from ddpmon.doctor.training import Torch
from ddpmon.launch.removal import bytes_text
from ddpmon.plain import plain
from ddpmon.runs import proc
from ddpmon.runs.proc import PTRACE_SCOPE

SHM = Path("/dev/shm")  # noqa: S108  looked at, not written to
HOST_PIDS = "pid:[4026531836]"
"""The pid namespace of the machine, by which NVML numbers processes (PROC_PID_INIT_INO in Linux's proc_ns.h)."""
SHM_SMALL_BYTES = 1 << 30
"""Docker gives 64 MiB, which two DataLoader workers with images fill; a judgement."""


def gpus(torch: Torch | None) -> Iterator[Check]:
    """NVML, which tells utilization, memory, power and clocks, beside what torch sees."""
    import pynvml

    seen = torch.gpus if torch else []
    try:
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [str(pynvml.nvmlDeviceGetName(device)) for device in devices]
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        if seen:
            yield note(
                "NVML",
                f"NVML does not answer ({error}), so ddpmon cannot show utilization, memory, power and "
                f"clocks of {counted(len(seen), 'GPU')}",
                "if this is a container, add utility to NVIDIA_DRIVER_CAPABILITIES",
            )
        else:
            yield ok("GPUs", f"no GPU found (NVML: {error}), so runs train on the CPU")
        return
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    yield ok("GPUs", f"{kinds or 'none'}; driver {driver}")
    yield from _gpu_users(pynvml, devices)
    if torch and len(seen) < len(names) and (torch.cuda or torch.hip):
        yield note(
            "GPUs",
            f"torch can use {len(seen)} of {len(names)} GPUs",
            "CUDA_VISIBLE_DEVICES hides the other GPUs from torch",
        )
    elif torch and names and not (torch.cuda or torch.hip):
        yield note(
            "GPUs",
            f"torch uses none of the {len(names)} GPUs, because this is a CPU build of torch",
            "install a CUDA build of torch",
        )


def _gpu_users(nvml: Any, devices: Sequence[Any]) -> Iterator[Check]:
    """Yield a note for each GPU that processes use already. In a container their ids mean nothing, and only count."""
    for index, device in enumerate(devices):
        try:
            users = nvml.nvmlDeviceGetComputeRunningProcesses(device)
        except nvml.NVMLError:  # a GPU, or a driver, without such a list
            continue
        if not users:
            continue
        who = counted(len(users), "process", "processes")
        if proc.pid_namespace() == HOST_PIDS:
            who = ", ".join(f"pid {one.pid}{_named(one.pid)}" for one in users)
        held = f", {bytes_text(used)}" if (used := sum(one.usedGpuMemory or 0 for one in users)) else ""
        yield note(
            "GPUs",
            f"GPU {index} is in use: {who}{held}",
            "end the processes of earlier runs, or choose other GPUs with CUDA_VISIBLE_DEVICES",
        )


def _named(pid: int) -> str:
    try:
        program = Path(os.fsdecode(proc.arguments(pid)[0])).name
    except OSError:  # it has ended
        return ""
    return f" ({plain(program)})" if program else ""


def cores(ranks: int | None, torch: Torch | None, environ: Mapping[str, str]) -> Check:
    """Cores that this process may use against ranks, and threads that each would compute with.

    ranks: how many are meant to be started here; None: as many as there are GPUs, or two.
    """
    here = cores_here()
    gpus = len(torch.gpus) if torch else 0
    planned = ranks or gpus or min(here, 2)
    text = f"{counted(here, 'core')} for {counted(planned, 'rank')}"
    if planned > here:
        return note(
            "cores",
            f"{text}, so ranks would share cores and wait for each other",
            f"--nproc {here} gives each rank a core",
        )
    threads = environ.get("OMP_NUM_THREADS", "")
    each = int(threads) if threads.isdecimal() else 1  # what torchrun sets where nothing else is set
    if planned * each > here:
        return note(
            "cores",
            f"{text} of {counted(each, 'thread')} each (OMP_NUM_THREADS)",
            f"with OMP_NUM_THREADS={max(1, here // planned)}, each rank has enough cores",
        )
    more = f"; {here // planned - 1} more cores per rank are free for DataLoader workers" if gpus else ""
    return ok("cores", f"{text}, {counted(each, 'thread')} each{more}")


def cores_here(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: its affinity, and the limit of its container (cgroup 2's cpu.max)."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):
        return allowed


def shared_memory(folder: Path = SHM) -> Check:
    """Through which DataLoader workers hand batches over."""
    try:
        size = shutil.disk_usage(folder).total
    except OSError as error:
        return note(
            "shared memory", f"{folder}: {error.strerror}", "DataLoader workers need this folder: mount a tmpfs there"
        )
    if size < SHM_SMALL_BYTES:
        way_out = "start docker with --shm-size=8g or --ipc=host; otherwise DataLoader workers may die with a bus error"
        return note("shared memory", f"{folder} holds {bytes_text(size)}", way_out)
    return ok("shared memory", f"{folder} holds {bytes_text(size)}")


def ptrace(scope: Path = PTRACE_SCOPE) -> Check:
    """Return whether debuggers may look into processes: py-spy and gdb need it, ddpmon does not."""
    try:
        level = int(scope.read_text())
    except (OSError, ValueError):
        level = 0
    if os.geteuid() == 0 or level == 0:
        return ok("stacks", "ddpmon stack, py-spy and gdb work")
    return ok("stacks", f"ddpmon stack works, but py-spy and gdb cannot attach to processes (ptrace_scope {level})")


def open_files(ranks: int) -> Check:
    """Return whether as many processes and files as a run needs may be open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 64 + 16 * ranks
    if files != resource.RLIM_INFINITY and files < needed:
        return problem(
            "open files", f"a process may open {files} files, and ddpmon needs {needed}", f"ulimit -n {needed}"
        )
    return ok("open files", "no limit" if files == resource.RLIM_INFINITY else f"a process may open {files} files")
