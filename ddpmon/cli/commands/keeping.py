"""ddpmon rename, rm and prune: what is kept of runs."""

from __future__ import annotations

import click

from ddpmon.cli.options import run_argument
from ddpmon.plain import plain


@click.command()
@run_argument("run")
@click.argument("name")
def rename(run: str, name: str) -> int:
    """Rename RUN to NAME, while it runs or after it has ended. Its id stays the same."""
    from ddpmon import runs

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

    Asks first, and refuses to delete a run that still runs. If the run started elsewhere (on another machine that
    shares the folder, or in another container), ddpmon cannot see whether it still runs: delete it there, or give
    --force.
    """
    import sys

    from ddpmon import runs
    from ddpmon.errors import UsageError
    from ddpmon.launch import removal

    target = removal.check(runs.find(run), force=force)
    description = plain(f"{target.name} ({target.id}), {target.state()}, {removal.size_text(target)}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm cannot ask without a terminal: give --yes to delete {target.name} ({target.id})")
        if not click.confirm(f"Delete {description}?"):
            print("deleted nothing")
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
    help="Size or age to keep: 20GB of runs, or runs that ended in the last 90d (MB, GB, TB; h, d, w).",
)
@click.option("--dry-run", is_flag=True, help="Only list the runs that it would delete.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def prune(keep: str | None, dry_run: bool, yes: bool) -> int:
    """Delete the oldest runs, until the rest fits the limit of --keep.

    Asks first. Deletes only runs that have ended; a run that may still be running elsewhere stays. With DDPMON_KEEP
    set, ddpmon run does the same at its start and says so; it warns from 80% of the limit on.
    """
    import sys

    from ddpmon.errors import UsageError
    from ddpmon.launch import removal, retention

    if not keep:
        raise UsageError(f"prune needs a limit: give --keep or set DDPMON_KEEP to {retention.GRAMMAR}")
    plan = retention.plan(retention.parse(keep, "--keep"))
    if not plan.going:
        runs_there = "1 run takes" if plan.count == 1 else f"{plan.count} runs take"
        print(f"nothing to delete: {runs_there} {removal.bytes_text(plan.size_bytes)}, within {keep}")
        return 0
    total = retention.sum_text(plan.going)
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
    stays = [why for _, why in retention.delete(plan.going) if why]
    for why in stays:
        print(f"ddpmon: {why}", file=sys.stderr)
    print(f"deleted {retention.count_text(len(plan.going) - len(stays))}")
    return 1 if stays else 0
