"""Says, before ddpmon touches a process, why it cannot be entered and what to do. Standard library only.

Each text is one line. `ddpmon doctor` makes the same checks for this machine in advance.
"""

from __future__ import annotations

import os
import sys

from ddpmon import proc
from ddpmon.attach import process_entry
from ddpmon.attach.jobs import RankProcess
from ddpmon.attach.process_entry import EntryError

INSTALL_GDB = "apt install gdb, or conda install gdb"
NO_DEBUGGER = f"gdb is missing on this machine, and attaching needs it before Python 3.14: {INSTALL_GDB}"
_DISABLED = "PYTHON_DISABLE_REMOTE_DEBUG"


def no_job(pid: int) -> str:
    """Return why no job can be found for a process."""
    if not proc.exists(pid):
        return f"--pid {pid}: this process does not exist; ddpmon ls lists the jobs that train on this machine"
    if (owner := proc.owner(pid)) != os.getuid():
        return f"--pid {pid}: the process runs as user {owner}; run ddpmon attach as that user"
    if elsewhere := _other_container(pid):
        return f"--pid {pid}: {elsewhere}"
    return (
        f"--pid {pid}: neither this process nor a child of it is a rank with a process group; ddpmon ls lists "
        "the jobs that train on this machine"
    )


def to_enter(rank: RankProcess) -> str:
    """Return why a rank cannot be entered; "" if nothing visible from outside prevents it."""
    pid = rank.process.pid
    name = f"pid {pid}" if rank.rank is None else f"rank {rank.rank} (pid {pid})"
    try:
        why = _obstacle(rank, pid)
    except EntryError as error:
        why = str(error)
    except OSError as error:
        why = f"ddpmon cannot examine the process: {error.strerror}"
    if why and not rank.process.alive():
        why = "the process has just ended"
    return f"{name}: {why}" if why else ""


def _obstacle(rank: RankProcess, pid: int) -> str:
    if elsewhere := _other_container(pid):
        return elsewhere
    if not rank.has_group:
        return "the process has no process group yet; try again when it trains"
    if tracer := int(proc.status(pid, "TracerPid") or 0):
        return f"process {tracer} already debugs this process; end that debugger first (gdb, strace, py-spy record)"
    if proc.is_stopped(pid):
        return f"a signal has stopped the process; attach again after kill -CONT {pid}"
    if denied := tracing_denied(pid):
        return denied
    version = process_entry.python_version(pid)
    ours = sys.version_info[:2]
    if version is None:
        return "the process does not run CPython"
    if version != ours:
        python = rank.words[0] if rank.words else "python"
        there, here = (".".join(map(str, each)) for each in (version, ours))
        return (
            f"the job runs Python {there}, and this ddpmon runs Python {here}; use a ddpmon for the job's "
            f"Python: {python} -m pip install ddpmon"
        )
    if version >= process_entry.REMOTE:
        if proc.environment(pid).get(_DISABLED):
            return (
                "PYTHON_DISABLE_REMOTE_DEBUG in the job's environment forbids attaching; start the job without "
                "this variable"
            )
        return ""
    program = process_entry.debugger()
    if program is None:
        return NO_DEBUGGER
    process_entry.addresses(pid)
    return process_entry.unfit_debugger(program)


def _other_container(pid: int) -> str:
    same = all(proc.namespace(kind, pid) in {"", proc.namespace(kind)} for kind in ("mnt", "pid"))
    return "" if same else "the process runs in another container; run ddpmon attach in that container"


def tracing_denied(pid: int) -> str:
    """Return why ddpmon may not read the memory of another process of this user; "" if it may."""
    try:
        os.close(os.open(f"{proc.PROC_ROOT}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return f"no permission to trace the process; {way_out()}"
    except OSError as error:
        return f"ddpmon cannot examine the process: {error.strerror}"
    return ""


def way_out() -> str:
    """Return an instruction for the user: how to get permission to trace other processes of this user."""
    scope = proc.ptrace_scope()
    if scope == 1:
        return "allow tracing with: sudo sysctl kernel.yama.ptrace_scope=0"
    if scope == 2:
        return (
            "only root may trace processes (kernel.yama.ptrace_scope is 2); change this with: sudo sysctl "
            "kernel.yama.ptrace_scope=0"
        )
    if scope == 3:
        return (
            "no process may trace another (kernel.yama.ptrace_scope is 3), and only a restart of the machine "
            "changes this"
        )
    return "if this is a container, start it with --cap-add=SYS_PTRACE"
