"""Stops a run, even if its supervisor was killed or stopped."""

from __future__ import annotations

import signal
import time

from ddpmon import runs
from ddpmon.errors import DdpmonError, RunNotFoundError
from ddpmon.launch import adoption, processes, run_processes
from ddpmon.launch.life import HUB_END_S, STOP_MARGIN_S, STUCK_AFTER_S, TERMINATE_S
from ddpmon.runs import Sight


def request_stop(run: runs.Run, now: bool = False) -> None:
    """Request the end of a run and return at once. The ranks get the run's grace, or no grace with `now`.

    A repeated request changes nothing, unless `now` ends the grace. If the run's supervisor was killed, a new
    supervisor is started for the stop. If the run has ended, the function does nothing.

    Raises:
        RunNotFoundError: The run's folder was moved or deleted.
        DdpmonError: The run's processes cannot be signalled from here.

    """
    folder = runs.run_dir(run.id)
    if not (folder / "run.json").exists():
        lost = f"cannot stop {run.name}: its run.json is gone"
        raise RunNotFoundError(f"{lost}; if you moved its folder, move it to {folder}")
    run = runs.load(run.id)
    if run.ended:
        return
    check_reach(run)
    if run.lost() and run.sight is Sight.PIDS and run_processes.of_run(run.id):
        run = adoption.take_over(run)
    if run.supervisor is not None and run.sight is Sight.PIDS and run.supervisor.alive():
        processes.send_signal(run.supervisor, signal.SIGQUIT if now else signal.SIGTERM)
        processes.resume(run.supervisor)


def check_reach(run: runs.Run) -> None:
    """Raise DdpmonError, which says where to stop the run, if its processes cannot be signalled from here."""
    if elsewhere := run.elsewhere():
        raise DdpmonError(f"{run.name} ({run.id}) {elsewhere}; stop the run there with ddpmon stop {run.id}")


def longest_s(run: runs.Run) -> float:
    """Return the longest time in seconds that a stop can take."""
    return run.grace_s + STOP_MARGIN_S + TERMINATE_S + STUCK_AFTER_S + HUB_END_S + 5.0


def wait_until_gone(run: runs.Run, timeout_s: float) -> runs.Run | None:
    """Wait for the end of a run and of its supervisor; return the ended run, or None if it has not ended in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        run = runs.load(run.id)
        if not run.supervised() and (run.ended or (not run.elsewhere() and not run_processes.of_run(run.id))):
            return run
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)
