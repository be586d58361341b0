"""Leave a job that was attached to. Standard library only."""

from __future__ import annotations

from ddpmon import runs
from ddpmon.attach.signals import DETACH
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import adoption, processes
from ddpmon.launch.stop import check_reach, wait_until_gone
from ddpmon.runs import Run

LONGEST_S = 60.0


def detach(run: Run) -> Run:
    """Remove the probe from the ranks of a run; the run as it ended. UsageError if ddpmon started it, or it is over."""
    if not run.attached:
        raise UsageError(
            f"ddpmon itself started {run.name} ({run.id}), so the probe stays until the run ends; ddpmon "
            f"stop {run.id} ends the run"
        )
    run = adoption.adopt(run)
    if run.ended:
        raise UsageError(f"{run.name} ({run.id}) has ended already")
    check_reach(run)
    if run.supervisor is not None:
        processes.send(run.supervisor, DETACH)
        adoption.wake(run.supervisor)
    gone = wait_until_gone(run, LONGEST_S)
    if gone is None:
        raise DdpmonError(
            f"the ranks of {run.name} ({run.id}) still have the probe after {LONGEST_S:.0f} s; "
            "logs/supervisor.log in the run's folder says why"
        )
    return runs.load(run.id)
