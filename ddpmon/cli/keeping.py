"""ddpmon rename, rm and prune: what is kept of runs."""

from __future__ import annotations

import click

from ddpmon.cli.options import run_argument
from ddpmon.plain import plain


@click.command()
@run_argument("run")
@click.argument("name")
def rename(run: str, name: str) -> int:
    """Give RUN the name NAME, whether it runs or has ended. Its id stays."""
    from ddpmon import runs

    target = runs.find(run)
    runs.rename(target, name)
    print(plain(f"{target.name} ({target.id}) is now {name}"))
    return 0


@click.command()
@run_argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Even if it cannot be seen from here whether it still runs.")
def rm(run: str, yes: bool, force: bool) -> int:
    """Delete RUN: its recording, its logs and its report. Asks first; a run that still runs is left alone.

    So is one that was started elsewhere (another machine that shares the folder, another container) and of which it
    cannot be seen whether it runs: delete it there, or say --force.
    """
    import sys

    from ddpmon import runs
    from ddpmon.errors import UsageError
    from ddpmon.launch import removal

    target = removal.check(runs.find(run), force=force)
    description = plain(f"{target.name} ({target.id}), {target.state()}, {removal.size_text(target)}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm asks before it deletes {target.name} ({target.id}); without a terminal give --yes")
        if not click.confirm(f"Delete {description}?"):
            print("nothing is deleted")
            return 0
    removal.delete(target, force=force)
    print(f"deleted {description}")
    return 0


@click.command()
@click.option(
    "--keep",
    envvar="DDPMON_KEEP",
    show_envvar=True,
    metavar="SIZE|AGE",
    help="What to keep: 20GB of runs, or those that ended in the last 90d (MB, GB, TB; h, d, w).",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(keep: str | None, dry_run: bool, yes: bool) -> int:
    """Delete the oldest runs, until what is kept is within the bound.

    Asks first. Only runs that have ended go; one that runs, or of which that cannot be seen from here, stays. With
    DDPMON_KEEP set, ddpmon run does the same at its start, says so, and warns from 80% on.
    """
    import sys

    from ddpmon.errors import UsageError
    from ddpmon.launch import removal, retention

    if not keep:
        raise UsageError(f"how much is to be kept? Give --keep or set DDPMON_KEEP: {retention.GRAMMAR}")
    plan = retention.plan(retention.parse(keep, "--keep"))
    if not plan.going:
        runs_there = "1 run takes" if plan.count == 1 else f"{plan.count} runs take"
        print(f"nothing to delete: {runs_there} {removal.bytes_text(plan.size_bytes)}, within {keep}")
        return 0
    total = retention.sum_text(plan.going)
    if not (dry_run or yes or sys.stdin.isatty()):
        raise UsageError(f"prune asks before it deletes {total}; without a terminal give --yes")
    for stored in plan.going:
        print(stored)
    if dry_run:
        print(f"would delete {total}")
        return 0
    if not yes and not click.confirm(f"Delete {total}?"):
        print("nothing is deleted")
        return 0
    stays = [why for _, why in retention.delete(plan.going) if why]
    for why in stays:
        print(f"ddpmon: {why}", file=sys.stderr)
    print(f"deleted {retention.count_text(len(plan.going) - len(stays))}")
    return 1 if stays else 0
