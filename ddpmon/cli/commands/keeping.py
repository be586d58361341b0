"""ddpmon rename, rm and prune: manage the stored runs."""

from __future__ import annotations

import sys

import click
from click.core import ParameterSource

from ddpmon import numbers, runs
from ddpmon.cli.options import run_argument
from ddpmon.errors import UsageError
from ddpmon.plain import plain


@click.command()
@run_argument("run")
@click.argument("name")
def rename(run: str, name: str) -> int:
    """Rename RUN to NAME, during the run or after its end. The run's id does not change."""
    target = runs.find(run)
    runs.rename(target, name)
    print(plain(f"{target.name} ({target.id}) is now {name}"))
    return 0


@click.command()
@run_argument("run")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--force", is_flag=True, help="Delete the run even if it may still be running on another machine.")
def rm(run: str, yes: bool, force: bool) -> int:
    """Delete RUN with its recording, logs and report.

    ddpmon asks before it deletes the run, and refuses to delete a run that is still running. ddpmon cannot see whether
    a run in another container, or on another machine that shares the folder, has ended. If the run started there,
    delete it there, or give --force.
    """
    from ddpmon.launch import removal

    target = removal.check_removable(runs.find(run), force=force)
    description = plain(f"{target.name} ({target.id}), {target.state()}, {removal.size_text(target)}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm cannot ask without a terminal: give --yes to delete {target.name} ({target.id})")
        if not click.confirm(f"Delete {description}?"):
            print("deleted nothing")
            return 0
    removal.delete_run(target, force=force)
    print(f"deleted {description}")
    return 0


@click.command()
@click.option(
    "--keep",
    envvar="DDPMON_KEEP",
    show_envvar=True,
    metavar="SIZE|AGE",
    help="Limit for all runs: a total size such as 20GB, or an age such as 90d. The units are MB, GB, TB, h "
    "(hours), d (days) and w (weeks).",
)
@click.option("--dry-run", is_flag=True, help="List the runs to delete, but delete nothing.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def prune(keep: str | None, dry_run: bool, yes: bool) -> int:
    """Delete the oldest runs until the others fit the limit of --keep.

    ddpmon asks first, and deletes only runs that have ended. ddpmon does not delete a run that may still be running on
    another machine. If DDPMON_KEEP is set, ddpmon run also deletes the oldest runs when it starts, and prints what it
    deletes. Above 80% of the limit, ddpmon run prints a warning.
    """
    from ddpmon.launch import removal

    if not keep:
        raise UsageError(f"prune needs a limit for all runs: set --keep or DDPMON_KEEP to {removal.GRAMMAR}")
    is_typed = click.get_current_context().get_parameter_source("keep") is ParameterSource.COMMANDLINE
    limit = removal.parse_limit(keep, "--keep" if is_typed else removal.KEEP_VARIABLE)
    plan = removal.plan_pruning(limit)
    if not plan.going:
        runs_there = "1 run takes" if plan.count == 1 else f"{plan.count} runs take"
        print(f"nothing to delete: {runs_there} {numbers.disk_size(plan.size_bytes)}, and the limit is {keep}")
        return 0
    total = removal.sum_text(plan.going)
    if not (dry_run or yes or sys.stdin.isatty()):
        raise UsageError(f"prune cannot ask without a terminal: give --yes to delete {total}")
    for stored in plan.going:
        print(stored)
    if dry_run:
        print(f"would delete {total}")
        return 0
    if not yes and not click.confirm(f"Delete {total}?"):
        print("deleted nothing")
        return 0
    stays = [why for _, why in removal.delete_runs(plan.going) if why]
    for why in stays:
        print(f"ddpmon: {why}", file=sys.stderr)
    print(f"deleted {removal.count_text(len(plan.going) - len(stays))}")
    return 1 if stays else 0
