"""Checks whether this machine allows ddpmon to attach to a job that was started without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ddpmon import proc
from ddpmon.attach import obstacles, process_entry
from ddpmon.doctor.check import Check, note, ok

DISABLED = "PYTHON_DISABLE_REMOTE_DEBUG"


def attaching(environ: Mapping[str, str]) -> Check:
    """Check whether ddpmon attach --pid works for jobs that run this version of Python."""
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info >= process_entry.REMOTE:
        how = "without a debugger, because Python itself can load the probe"
        if environ.get(DISABLED):
            return note(
                "attach",
                f"{DISABLED} is set, so ddpmon cannot attach to jobs that inherit this variable",
                f"unset {DISABLED}",
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
