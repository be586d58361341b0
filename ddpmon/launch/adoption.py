"""Repairs a run whose supervisor was killed or stopped. Every command that acts on a run calls this module first.

A supervisor that a signal stopped is continued. A supervisor that was killed is replaced by a successor. The successor
watches the run to its end, restarts the hub if necessary, and determines the exit code if possible. If several commands
start a successor at once, only one of the successors gets the run's lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import processes, run_processes
from ddpmon.runs import Run, Sight

CONCLUDED_S = 30.0
"""Longest wait, in seconds, for the new supervisor of a run without processes to record the end of the run. Meanwhile
its hub writes the report."""
SIGNED_S = 10.0
"""Longest wait, in seconds, until a successor started by another command has entered itself in run.json."""


def adopt_run(run: Run, say: Callable[[str], None] | None = None) -> Run:
    """Make sure that a live run has a running supervisor and a running hub; return the run with its new state.

    A run that has ended, or that belongs to another machine, boot or pid namespace, is returned unchanged. If no
    process of a lost run is left, the function waits until the successor has recorded how the run ended.

    Args:
        run: The run.
        say: Receives a line about each repair.

    Raises:
        DdpmonError: A successor cannot start.

    """
    run = runs.load(run.id)
    if run.ended or run.sight is not Sight.PIDS:
        return run
    if run.lost():
        return take_over(run, say)
    for process, name in ((run.supervisor, "supervisor"), (run.hub, "hub")):
        if processes.resume(process) and say:
            say(f"resumed the {name} of {run.name} ({run.id}), which a signal had stopped")
    return run


def take_over(run: Run, say: Callable[[str], None] | None = None) -> Run:
    """Start a successor for a lost run, unless another command is doing so at this moment."""
    from ddpmon.launch.start import NotStartedError, supervise

    if not runs.held(run.id):
        try:
            supervise(run.id, "--take-over")
        except NotStartedError as error:
            if not runs.held(run.id) and not runs.load(run.id).ended:
                raise DdpmonError(
                    f"the supervisor of {run.name} ({run.id}) has ended, and ddpmon cannot start another: {error}"
                ) from None
        except OSError as error:
            raise DdpmonError(
                f"ddpmon cannot start another supervisor for {run.name} ({run.id}): {error.strerror}"
            ) from None
        else:
            if say:
                say(f"the supervisor of {run.name} ({run.id}) was killed; a new one replaces it")
    deadline = time.monotonic() + SIGNED_S
    # The successor that holds the lock may not have entered itself in run.json yet, and cannot be signalled before.
    while not (run := runs.load(run.id)).ended and not _supervisor_lives(run) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not run.ended and not run_processes.of_run(run.id):
        deadline = time.monotonic() + CONCLUDED_S
        while _supervisor_lives(run) and time.monotonic() < deadline:
            time.sleep(0.05)
        run = runs.load(run.id)
    return run


def _supervisor_lives(run: Run) -> bool:
    return run.supervisor is not None and run.supervisor.alive()
