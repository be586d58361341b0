"""ddpmon stop: ends a run and all of its processes."""

from __future__ import annotations

import sys

import click

from ddpmon import runs
from ddpmon.cli.options import run_argument
from ddpmon.cli.reaching import latest_running, over_ssh
from ddpmon.errors import DdpmonError, RunNotFoundError, UsageError
from ddpmon.plain import plain
from ddpmon.runs import Run


@click.command()
@run_argument("run", required=False)
@click.option("--now", is_flag=True, help="Send SIGKILL at once, without a grace period.")
@click.option("--yes", is_flag=True, help="Do not ask before stopping a job that ddpmon attached to.")
@over_ssh
def stop(run: str | None, now: bool, yes: bool) -> int:
    """Stop RUN, or the latest run that is still running.

    A rank with a handler for SIGTERM gets SIGTERM; any other rank gets SIGINT. Ranks that are still alive after the
    grace period (ddpmon run --grace) get SIGKILL. A second stop waits for the first and does not shorten the grace
    period. Ctrl-C during the wait has the same effect as --now.

    If ddpmon attached to the job, stop asks first, and then stops the job through its own launcher. Use ddpmon detach
    to leave such a job without stopping it.
    """
    from ddpmon.launch import run_processes
    from ddpmon.launch import stop as stopping

    target = latest_running() if run is None else runs.find(run)
    if target is None:
        raise RunNotFoundError("none of your runs is running; ddpmon ls lists all runs")
    if target.ended:
        print(plain(f"{target.name} ({target.id}) has ended already"))
        return 0
    stopping.check_reach(target)
    if target.attached and not yes and not _agreed(target):
        print("stopped nothing")
        return 0
    try:
        if not now:
            left_s = target.grace_left_s()
            stops = "stopping" if left_s is None else "already stopping"
            have = f"have {target.grace_s:g} s" if left_s is None else f"have {left_s:.0f} s left"
            print(
                plain(f"{stops} {target.name} ({target.id}); its ranks {have}; press Ctrl-C to kill them"), flush=True
            )
        stopping.request_stop(target, now=now)
        gone = stopping.wait_until_gone(target, stopping.longest_s(target))
    except KeyboardInterrupt:
        stopping.request_stop(target, now=True)
        gone = stopping.wait_until_gone(target, stopping.longest_s(target))
    if gone is None:
        pids_left = ", ".join(str(process.pid) for process in run_processes.of_run(target.id))
        raise DdpmonError(
            f"{target.name} ({target.id}) does not end; these processes are still alive: "
            f"{pids_left or 'its supervisor'}"
        )
    print(plain(f"{target.name} ({target.id}) is {gone.state()}; all its processes have ended"))
    return 0


def _agreed(run: Run) -> bool:
    """Ask whether to stop a job that ddpmon did not start; return the answer. Raise UsageError without a terminal."""
    launcher = f"its launcher (pid {run.agent.pid})" if run.agent else f"its {len(run.attached)} ranks"
    if not sys.stdin.isatty():
        raise UsageError(
            f"ddpmon did not start the job of {run.name} ({run.id}): give --yes to stop {launcher}, or use "
            f"ddpmon detach {run.id}, which leaves the job running"
        )
    return click.confirm(plain(f"ddpmon did not start the job of {run.name} ({run.id}). Stop {launcher}?"))
