"""Follows a supervisor while it arms or removes the probe in the ranks of a job. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ddpmon import runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import adoption, processes, removal
from ddpmon.launch.stop import check_reach, wait_until_gone
from ddpmon.runs import Run
from ddpmon.runs.run import ENTERING, IN, REFUSED, STARTING, WAITING, Attached

REPORT_WAITING_S = 5.0
"""Seconds for ranks to return to Python code, after which the user gets a list of those that have not."""
RUN_GONE_TIMEOUT_S = 45.0
_POLL_S = 0.05


def until_entered(run: Run) -> Iterator[str]:
    """Yield a line for each rank that ddpmon has entered, until it has entered all, or the others stay in C code.

    Notes about the limits of attaching come first. Raises DdpmonError if one rank cannot be entered; the supervisor has
    then removed the probe from the others, and the run is deleted.
    """
    yield from run.notes
    told: set[Attached] = set()
    answer_by = None
    while True:
        run = adoption.adopt_run(run)
        for each in run.attached:
            if each.state == IN and each not in told:
                told.add(each)
                yield f"ddpmon watches {each.name}"
        if run.ended:
            _raise(run)
        states = {each.state for each in run.attached}
        if not states & {ENTERING, WAITING, STARTING, REFUSED}:
            return
        if not states & {ENTERING, STARTING, REFUSED}:  # After a refusal, the run ends.
            answer_by = answer_by or time.monotonic() + REPORT_WAITING_S
            if time.monotonic() >= answer_by:
                break
        time.sleep(_POLL_S)
    for each in run.attached:
        if each.state == WAITING:
            who = f"{each.name} {each.why}".rstrip()
            yield f"{who} has not answered yet; the probe starts when the rank returns from C code"


def _raise(run: Run) -> None:
    """Raise the reason why the ranks could not be entered, and delete the run, which recorded nothing."""
    gone = wait_until_gone(run, RUN_GONE_TIMEOUT_S) or run
    if gone.state() == "failed" and any(each.state == REFUSED for each in gone.attached):
        removal.delete_run(gone)
        raise DdpmonError(f"ddpmon could not attach: {gone.error}")
    raise DdpmonError(f"{gone.name} ({gone.id}) has ended already: {gone.error or gone.state()}")


DETACH_TIMEOUT_S = 60.0


def detach(run: Run) -> Run:
    """Remove the probe from the ranks of a run; return the run as it ended.

    Raises UsageError if ddpmon started the run itself or the run has ended.
    """
    if not run.attached:
        raise UsageError(
            f"ddpmon itself started {run.name} ({run.id}), so the probe stays until the run ends; ddpmon "
            f"stop {run.id} ends the run"
        )
    run = adoption.adopt_run(run)
    if run.ended:
        raise UsageError(f"{run.name} ({run.id}) has ended already")
    check_reach(run)
    if run.supervisor is not None:
        from ddpmon.attach.signals import DETACH  # Viewers on other systems have no such signal.

        processes.send_signal(run.supervisor, DETACH)
        processes.resume(run.supervisor)
    gone = wait_until_gone(run, DETACH_TIMEOUT_S)
    if gone is None:
        raise DdpmonError(
            f"the ranks of {run.name} ({run.id}) still have the probe after {DETACH_TIMEOUT_S:.0f} s; "
            "logs/supervisor.log in the run's folder says why"
        )
    return runs.load(run.id)
