"""Determines the exit code of a job that ddpmon did not start. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ddpmon.launch import exit_traces
from ddpmon.launch.exit_traces import Stranger
from ddpmon.launch.supervisor_process import shell_code
from ddpmon.runs import Run

UNKNOWN = "the job has ended; ddpmon cannot see its exit code, because ddpmon did not start the job"
GOODBYES_S = 5.0
"""Longest time for the hub to record the goodbyes of the ranks."""
_LOOK_S = 0.1


def exit_code(
    run: Run, launcher: Stranger | None, ranks: Sequence[Stranger], pause: Callable[[float], object]
) -> tuple[int | None, str | None]:
    """Return the exit code of the job, or None with a line that says why it is unknown.

    Both are None if a user stopped the job through ddpmon. Exit codes come from the kernel: the launcher's, or those
    of the ranks where there is no launcher. Where the kernel has none, the code is 0 if every rank said goodbye without
    a failure.
    """
    if run.stopping:
        return None, None
    codes = [launcher.exit_code()] if launcher else [rank.exit_code() for rank in ranks]
    seen = [code for code in codes if code is not None]
    if len(seen) == len(codes):
        return shell_code(next((code for code in seen if code), 0)), None
    deadline = time.monotonic() + GOODBYES_S
    while not exit_traces.all_said_goodbye(run):
        if time.monotonic() >= deadline:
            return None, UNKNOWN
        pause(_LOOK_S)
    return 0, None
