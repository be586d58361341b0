"""Checks the machine: GPUs, cores per rank, shared memory, open files, and whether debuggers may attach."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpmon import numbers, proc
from ddpmon.analysis.words import format_count
from ddpmon.attach import obstacles, process_entry
from ddpmon.doctor.check import Check, note, ok, problem
from ddpmon.doctor.training import Torch
from ddpmon.plain import plain

SHM = Path("/dev/shm")  # noqa: S108  looked at, not written to
HOST_PIDS = "pid:[4026531836]"
"""The machine's own pid namespace, in which NVML reports pids (PROC_PID_INIT_INO in Linux's proc_ns.h)."""
REMOTE_DEBUG = "PYTHON_DISABLE_REMOTE_DEBUG"
SHM_SMALL_BYTES = 1 << 30
"""Shared memory below this number of bytes gets a note. Two workers that load images fill Docker's default of 64 MiB;
the limit itself is an estimate.
"""


def gpus(torch: Torch | None) -> Iterator[Check]:
    """Check that NVML, which measures utilization, memory, power and clocks, works and that torch sees all GPUs."""
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
                f"clocks of {format_count(len(seen), 'GPU')}",
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
    """Yield a note for each GPU that processes already use.

    In a container the note only counts them, because NVML reports pids of the machine's own pid namespace.
    """
    for index, device in enumerate(devices):
        try:
            users = nvml.nvmlDeviceGetComputeRunningProcesses(device)
        except nvml.NVMLError:  # The GPU or its driver has no such list.
            continue
        if not users:
            continue
        who = format_count(len(users), "process", "processes")
        if proc.namespace("pid") == HOST_PIDS:
            who = ", ".join(f"pid {one.pid}{_named(one.pid)}" for one in users)
        held = f", {numbers.size(used)}" if (used := sum(one.usedGpuMemory or 0 for one in users)) else ""
        yield note(
            "GPUs",
            f"GPU {index} is in use: {who}{held}",
            "end the processes of earlier runs, or choose other GPUs with CUDA_VISIBLE_DEVICES",
        )


def _named(pid: int) -> str:
    program = Path(next(iter(proc.arguments(pid)), "")).name
    return f" ({plain(program)})" if program else ""


def cores(ranks: int | None, torch: Torch | None, environ: Mapping[str, str]) -> Check:
    """Check that there are enough cores for the ranks and the threads that each rank computes with.

    Args:
        ranks: Number of ranks that the user plans to start here; None for one per GPU, or two without GPUs.
        torch: Properties of torch; None if it cannot be imported.
        environ: Environment variables, of which OMP_NUM_THREADS counts.

    """
    here = cores_here()
    gpus = len(torch.gpus) if torch else 0
    planned = ranks or gpus or min(here, 2)
    text = f"{format_count(here, 'core')} for {format_count(planned, 'rank')}"
    if planned > here:
        return note(
            "cores",
            f"{text}, so ranks would share cores and wait for each other",
            f"--nproc {here} gives each rank a core",
        )
    threads = environ.get("OMP_NUM_THREADS", "")
    each = int(threads) if threads.isdecimal() else 1  # torchrun sets 1 where nothing else is set.
    if planned * each > here:
        return note(
            "cores",
            f"{text} of {format_count(each, 'thread')} each (OMP_NUM_THREADS)",
            f"with OMP_NUM_THREADS={max(1, here // planned)}, each rank has enough cores",
        )
    more = f"; {here // planned - 1} more cores per rank are free for DataLoader workers" if gpus else ""
    return ok("cores", f"{text}, {format_count(each, 'thread')} each{more}")


def cores_here(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores the affinity of this process and the limit of its container (cgroup 2's cpu.max) allow."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):
        return allowed


def shared_memory(folder: Path = SHM) -> Check:
    """Check the size of the shared memory through which DataLoader workers pass batches."""
    try:
        size = shutil.disk_usage(folder).total
    except OSError as error:
        return note(
            "shared memory", f"{folder}: {error.strerror}", "DataLoader workers need this folder: mount a tmpfs there"
        )
    if size < SHM_SMALL_BYTES:
        way_out = "start docker with --shm-size=8g or --ipc=host; otherwise DataLoader workers may die with a bus error"
        return note("shared memory", f"{folder} holds {numbers.size(size)}", way_out)
    return ok("shared memory", f"{folder} holds {numbers.size(size)}")


def ptrace() -> Check:
    """Check whether debuggers may attach to processes: py-spy and gdb need that, ddpmon does not."""
    level = proc.ptrace_scope()
    if os.geteuid() == 0 or level == 0:
        return ok("stacks", "ddpmon stack, py-spy and gdb work")
    return ok("stacks", f"ddpmon stack works, but py-spy and gdb cannot attach to processes (ptrace_scope {level})")


def open_files(ranks: int) -> Check:
    """Check whether a process may open as many files as a run needs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 64 + 16 * ranks
    if files != resource.RLIM_INFINITY and files < needed:
        return problem(
            "open files", f"a process may open {files} files, and ddpmon needs {needed}", f"ulimit -n {needed}"
        )
    return ok("open files", "no limit" if files == resource.RLIM_INFINITY else f"a process may open {files} files")


def attaching(environ: Mapping[str, str]) -> Check:
    """Check whether ddpmon attach --pid works for jobs that run this version of Python."""
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info >= process_entry.REMOTE:
        how = "without a debugger, because Python itself can load the probe"
        if environ.get(REMOTE_DEBUG):
            return note(
                "attach",
                f"{REMOTE_DEBUG} is set, so ddpmon cannot attach to jobs that inherit this variable",
                f"unset {REMOTE_DEBUG}",
            )
    elif (program := process_entry.debugger()) is None:
        return note(
            "attach", "ddpmon cannot attach to running jobs, because this machine has no gdb", obstacles.INSTALL_GDB
        )
    elif unfit := process_entry.unfit_debugger(program):
        return note("attach", "ddpmon cannot attach to running jobs with the gdb of this machine", unfit)
    else:
        how = f"through {os.path.basename(program)}"
    if os.geteuid() != 0 and proc.ptrace_scope():
        scope = proc.ptrace_scope()
        return note(
            "attach",
            f"ddpmon cannot attach to running jobs, because it has no permission to trace them (ptrace_scope {scope})",
            obstacles.way_out(),
        )
    return ok("attach", f"ddpmon can attach to running jobs on {version}, {how}")
