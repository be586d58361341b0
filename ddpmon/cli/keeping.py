"""ddpmon rename and rm: what is kept of runs."""

from __future__ import annotations

import click


@click.command()
@click.argument("run")
@click.argument("name")
def rename(run: str, name: str) -> int:
    """Give RUN the name NAME, whether it runs or has ended. Its id stays."""
    from ddpmon import runs

    found = runs.find(run)
    runs.rename(found, name)
    print(f"{found.name} ({found.id}) is now {name}")
    return 0


@click.command()
@click.argument("run")
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

    found = removal.check(runs.find(run), force=force)
    what = f"{found.name} ({found.id}), {found.state()}, {removal.size_text(found)}"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm asks before it deletes {found.name} ({found.id}); without a terminal give --yes")
        if not click.confirm(f"Delete {what}?"):
            print("nothing is deleted")
            return 0
    removal.delete(found, force=force)
    print(f"deleted {what}")
    return 0
