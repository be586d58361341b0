"""ddpmon rename and rm: what is kept of runs."""

from __future__ import annotations

import click

from ddpmon.plain import plain


@click.command()
@click.argument("run")
@click.argument("name")
def rename(run: str, name: str) -> int:
    """Give RUN the name NAME, whether it runs or has ended. Its id stays."""
    from ddpmon import runs

    found = runs.find(run)
    runs.rename(found, name)
    print(plain(f"{found.name} ({found.id}) is now {name}"))
    return 0


@click.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(run: str, yes: bool) -> int:
    """Delete RUN: its recording, its logs and its report. Asks first; a run that still runs is left alone."""
    import sys

    from ddpmon import runs
    from ddpmon.errors import UsageError
    from ddpmon.launch import removal

    found = removal.check(runs.find(run))
    what = plain(f"{found.name} ({found.id}), {found.state()}, {removal.size_text(found)}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm asks before it deletes {found.name} ({found.id}); without a terminal give --yes")
        if not click.confirm(f"Delete {what}?"):
            print("nothing is deleted")
            return 0
    removal.delete(found)
    print(f"deleted {what}")
    return 0
