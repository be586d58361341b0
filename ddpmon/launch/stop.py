"""Stop a run, whoever started it and whatever became of its supervisor."""

from __future__ import annotations

import signal
import time

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import adoption, processes, remaining_processes
from ddpmon.launch.life import GIVE_UP_S, HUB_END_S, STOP_MARGIN_S, TERMINATE_S
from ddpmon.runs import Sight


def request(run: runs.Run, now: bool = False) -> None:
    """Ask for the end of a run and return: its ranks get their grace, or with `now` none.

    Asking again joins the first; only `now` shortens the grace. A run whose supervisor was killed gets a new one for
    this. Nothing happens to a run that has ended. DdpmonError where its processes cannot be signalled from here.
    """
    run = runs.load(run.id)
    if run.ended:
        return
    check_reach(run)
    if run.lost() and run.sight is Sight.PIDS and remaining_processes.of_run(run.id):
        run = adoption.take_over(run)
    if run.supervisor is not None and run.sight is Sight.PIDS and run.supervisor.alive():
        processes.send(run.supervisor, signal.SIGQUIT if now else signal.SIGTERM)
        adoption.wake(run.supervisor)


def check_reach(run: runs.Run) -> None:
    """DdpmonError says where a run is to be stopped whose processes cannot be signalled from here."""
    if elsewhere := run.elsewhere():
        raise DdpmonError(f"{run.name} ({run.id}) {elsewhere}; stop the run there with ddpmon stop {run.id}")


def longest_s(run: runs.Run) -> float:
    """Return how long a stop can take at the very most."""
    return run.grace_s + STOP_MARGIN_S + TERMINATE_S + GIVE_UP_S + HUB_END_S + 5.0


def wait_until_gone(run: runs.Run, timeout_s: float) -> runs.Run | None:
    """Wait for the end of a run and of its supervisor; the run as it ended, None if it has not by then."""
    deadline = time.monotonic() + timeout_s
    while True:
        run = runs.load(run.id)
        if not run.supervised() and (run.ended or (not run.elsewhere() and not remaining_processes.of_run(run.id))):
            return run
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)
