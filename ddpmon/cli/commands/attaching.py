"""ddpmon attach and detach: watch a run, or a job that was started without ddpmon, and leave that job again."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ddpmon import runs
from ddpmon.cli import reaching
from ddpmon.cli.options import Notify, WholeNumber, grace, lines, notifications, on_alert, root_hub, run_argument, theme
from ddpmon.cli.reaching import find, over_ssh
from ddpmon.errors import RunNotFoundError, UsageError
from ddpmon.plain import plain
from ddpmon.remote.address import parse
from ddpmon.runs import Run

FIRST_STEPS_S = 20.0
"""Longest time in seconds for which `attach --pid --once` waits for steps, since a job may hang or evaluate."""


@click.command()
@run_argument("run", required=False)
@click.option(
    "--pid",
    type=WholeNumber(1),
    metavar="PID",
    help="Attach to a job by the process id of its torchrun, or of any of its ranks.",
)
@click.option("--name", help="Name of the run that --pid starts; the default is the script's name.")
@root_hub("Without --hub, --pid starts a run of its own on each machine.")
@grace
@on_alert
@lines
@notifications
@theme
@click.option("--once", is_flag=True, help="Print the summary and the table of ranks once, and exit.")
@click.option("--readonly", is_flag=True, help="Disable all keys that stop or change a run.")
def attach(
    run: str | None, pid: int | None, name: str | None, hub: str | None, hub_key: Path | None, grace: float,
    on_alert: list[str], headless: bool, every: float, notify: Notify, once: bool, readonly: bool,
) -> int:  # fmt: skip
    """Watch a run. The run continues when you leave the dashboard.

    To watch a run on another machine, give USER@HOST, HOST: or HOST:RUN; ddpmon must be installed there too. ddpmon
    connects with your ssh command and its configuration, and reconnects after an interruption.

    --pid attaches to a running job that was started without ddpmon. ddpmon loads its probe into all ranks of the job on
    this machine. ddpmon ls lists such jobs. Before Python 3.14, --pid needs gdb. ddpmon counts steps from the moment of
    attaching. For one run over several machines, use --pid on each of them with the same --hub. ddpmon detach removes
    the probe, and the job continues.

    \b
    Exit codes:
      0           you left the dashboard; the run goes on
      0           someone detached ddpmon from the job; the job goes on
      the run's   the run has ended (0: done)
      1 or 2      --pid did not attach; one line on stderr says why
      0, 1, 2     with --once: as ddpmon status
    """
    from ddpmon.cli import watching
    from ddpmon.launch.given_hub import given_hub

    if pid is not None:
        if run is not None:
            raise UsageError("give either a run, or --pid with the process id of a job")
        given = given_hub(hub, hub_key, os.environ)
        quiet = not headless and watching.interactive()
        target = _attached(pid, quiet, name=name, grace_s=grace, on_alert=on_alert, notify=notify.urls, hub=given)
    else:
        if notify.urls and click.get_current_context().get_parameter_source("notify") is ParameterSource.COMMANDLINE:
            raise UsageError("--notify URL is for runs that begin now: give it to ddpmon run, exec or attach --pid")
        address = parse(run)
        if address is not None and run is not None:
            if once or headless or not watching.interactive():
                return reaching.as_typed(address, run)
            return reaching.dashboard(address, every, notify.way, readonly=readonly)
        target = find(run)
    if once:
        from ddpmon.cli.commands import checking

        if pid is not None:
            _wait_for_steps(target)
        return checking.once(target)
    if not headless and watching.interactive():
        return watching.dashboard(target, every, owns_run=False, notify=notify.way, readonly=readonly)
    with watching.Signals(owns_run=False) as signals:
        return watching.follow(target, every, signals)


def _wait_for_steps(run: Run) -> None:
    """Wait until the hub has the first steps of all ranks, but at most `FIRST_STEPS_S`."""
    from ddpmon.source import snapshot_now

    give_up_at = time.monotonic() + FIRST_STEPS_S
    while time.monotonic() < give_up_at:
        snapshot = snapshot_now(run)
        if snapshot is None or snapshot.state != "waiting":
            return
        time.sleep(0.2)


def _attached(pid: int, quiet: bool, **options: Any) -> Run:
    """Attach to a job. Return its run once each rank has loaded the probe or refused it.

    Args:
        pid: A process of the job.
        quiet: Print no progress, because a dashboard will show it.
        **options: Options of `attach.start.attach`.

    """
    from ddpmon.attach import start, waiting

    job = start.find(pid)
    with runs.reserved() as run_id:
        run = start.attach(job, run_id, **options)
    for line in waiting.until_entered(run):
        if not quiet:
            print(plain(line), flush=True)
    return runs.load(run.id)


@click.command()
@run_argument("run", required=False)
@over_ssh
def detach(run: str | None) -> int:
    """Remove the probe from the ranks of a job that ddpmon attached to. The job continues as before.

    The default for RUN is the latest run that is attached to a job. The run's recording and its report remain.
    """
    from ddpmon.attach.waiting import detach as leave

    if run is None:
        attached = [each for each in runs.all_runs() if each.attached and not each.ended]
        if not attached:
            raise RunNotFoundError("ddpmon is not attached to any job; ddpmon ls lists all runs")
        target = attached[-1]
    else:
        target = runs.find(run)
    left = leave(target)
    if left.error:
        print(plain(f"ddpmon: {left.name} ({left.id}): {left.error}"), file=sys.stderr)
        return 1
    what = "continues without the probe" if left.state() == "detached" else f"is {left.state()}"
    print(
        plain(
            f"the job of {left.name} ({left.id}) {what}; ddpmon report {left.id} prints a report about the time "
            "with the probe"
        )
    )
    return 0
