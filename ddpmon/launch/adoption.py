"""Runs whose supervisor was killed or stopped: the next command that touches one sees to it.

A stopped supervisor is told to go on. A killed one gets a successor, which watches the run to its end, keeps a hub, and
learns the exit code where that can be learnt. However many commands come at once, one successor gets the run's lock.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import processes, remaining_processes
from ddpmon.launch.start import NotStartedError, supervise
from ddpmon.runs import Process, Run, Sight, proc

CONCLUDED_S = 30.0
"""Longest time for a successor that finds no process left: it has the report written."""
SIGNED_S = 10.0
"""Longest time for a successor to sign that another command has started."""


def adopt(run: Run, say: Callable[[str], None] | None = None) -> Run:
    """Give a run that goes on from here a supervisor and a hub that are awake; the run as it is then.

    say: takes a line on what had to be done. A run that is over, or of another machine or boot, is left as it is. Where
    nothing is left of a lost run, it waits until its end is written down as far as it was seen. DdpmonError if a
    successor cannot start.
    """
    run = runs.load(run.id)
    if run.ended or run.sight is not Sight.PIDS:
        return run
    if run.lost():
        return take_over(run, say)
    for process, name in ((run.supervisor, "supervisor"), (run.hub, "hub")):
        if wake(process) and say:
            say(f"resumed the {name} of {run.name} ({run.id}), which a signal had stopped")
    return run


def take_over(run: Run, say: Callable[[str], None] | None = None) -> Run:
    """Start a successor for a lost run, unless somebody else does so just now."""
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
    # who has taken the lock need not have signed yet: until then there is nobody to ask for anything
    while not (run := runs.load(run.id)).ended and not _supervisor_lives(run) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not run.ended and not remaining_processes.of_run(run.id):
        deadline = time.monotonic() + CONCLUDED_S
        while _supervisor_lives(run) and time.monotonic() < deadline:
            time.sleep(0.05)
        run = runs.load(run.id)
    return run


def _supervisor_lives(run: Run) -> bool:
    return run.supervisor is not None and run.supervisor.alive()


def wake(process: Process | None) -> bool:
    """Continue a process that a signal stopped; says whether it was stopped."""
    if process is None or not process.alive() or not proc.is_stopped(process.pid):
        return False
    processes.send(process, signal.SIGCONT)
    return True
