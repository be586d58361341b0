"""Stop a run, whoever started it and whatever became of its supervisor."""

from __future__ import annotations

import signal
import time

from ddpmon import runs
from ddpmon.launch import adoption, processes
from ddpmon.launch.life import GIVE_UP_S, HUB_END_S, STOP_MARGIN_S, TERMINATE_S


def request(run: runs.Run, now: bool = False) -> None:
    """Ask for the end of a run and return: its ranks get their grace, or with `now` none.

    Asking again joins the first; only `now` shortens the grace. A run whose supervisor was killed gets a new one for
    this. Nothing happens to a run that has ended.
    """
    run = runs.load(run.id)
    if run.ended:
        return
    if run.lost() and run.boot_id == runs.boot_id() and processes.with_run_id(run.id):
        run = adoption.take_over(run)
    if run.supervisor is not None and run.supervisor.alive():
        processes.send(run.supervisor, signal.SIGUSR1 if now else signal.SIGTERM)
        adoption.wake(run.supervisor)


def longest_s(run: runs.Run) -> float:
    """How long a stop can take at the very most."""
    return run.grace_s + STOP_MARGIN_S + TERMINATE_S + GIVE_UP_S + HUB_END_S + 5.0


def wait_until_gone(run: runs.Run, timeout_s: float) -> runs.Run | None:
    """Wait for the end of a run and of its supervisor; the run as it ended, None if it has not by then."""
    deadline = time.monotonic() + timeout_s
    while True:
        run = runs.load(run.id)
        supervised = run.supervisor is not None and run.supervisor.alive()
        if not supervised and (run.ended or not processes.with_run_id(run.id)):
            return run
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)
