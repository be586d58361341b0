"""ddpmon attach, ls, logs and report: look at what runs and what ran."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ddpmon.cli.options import lines, notifications

if TYPE_CHECKING:
    from ddpmon.runs import Run


@click.command()
@click.argument("run", required=False)
@lines
@notifications
@click.option("--once", is_flag=True, help="Print the head and the rank table as they are now, and leave.")
@click.option("--readonly", is_flag=True, help="No key of this dashboard can stop or change anything.")
def attach(run: str | None, headless: bool, every: float, notify: str, once: bool, readonly: bool) -> int:
    """Watch a run. Leaving never stops it.

    Exit code: 0 after leaving, else the run's. With --once as that of ddpmon status.
    """
    from ddpmon.cli import watching
    from ddpmon.cli.finding import find

    found = find(run)
    if once:
        from ddpmon.cli import standing

        return standing.once(found)
    if not headless and watching.interactive():
        return watching.dashboard(found, every, owns_run=False, notify=notify, readonly=readonly)
    with watching.Signals() as signals:
        return watching.follow(found, every, signals, owns_run=False)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def ls(as_json: bool) -> None:
    """Runs of this user, the latest first."""
    import json

    from ddpmon import runs

    found = runs.all_runs()[::-1]
    if as_json:
        print(json.dumps([_facts(run) for run in found], indent=1))
    elif not found:
        print("no runs yet; ddpmon run --nproc 4 SCRIPT starts one")
    else:
        rows = [("ID", "NAME", "STATE", "RANKS", "STARTED", "TOOK", "COMMAND"), *map(_row, found)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
        for *cells, last in rows:
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            print("  ".join([*padded, last]))


def _facts(run: Run) -> dict[str, object]:
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state(),
        "stopping": run.stopping and not run.ended,
        "world_size": run.world_size or None,
        "nnodes": run.nnodes,
        "script": run.script,
        "script_args": run.script_args,
        "started_at": run.created_at,
        "ended_at": run.ended_at,
        "exit_code": run.exit_code,
    }


def _row(run: Run) -> tuple[str, ...]:
    from ddpmon.plain import plain

    state = run.state()
    started = time.strftime("%m-%d %H:%M", time.localtime(run.created_at))
    took = "?" if state == "lost" else _duration((run.ended_at or time.time()) - run.created_at)
    return (
        run.id,
        run.name,
        "stopping" if state == "running" and run.stopping else state,
        str(run.world_size or "?"),
        started,
        took,
        plain(" ".join([run.script, *run.script_args]))[:60],
    )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(max(0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d{hours % 24:02d}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s"


@click.command()
@click.argument("run", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json", "md"]), default="text", show_default=True)
def report(run: str | None, form: str) -> None:
    """What happened in a run, and what to do about it.

    json has everything; md is Markdown for a pull request or a chat.
    """
    import json

    from ddpmon.cli.finding import find
    from ddpmon.export import markdown
    from ddpmon.export import report as reports

    built = reports.build(find(run))
    if form == "json":
        print(json.dumps(built, indent=1))
    else:
        print(reports.text(built) if form == "text" else markdown.report(built))


@click.command()
@click.argument("run", required=False)
@click.option("--rank", type=click.IntRange(0), help="Only what this rank printed.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
def logs(run: str | None, rank: int | None, follow: bool) -> None:
    """What the ranks printed on this machine, identical lines of several ranks folded.

    "!" marks what went to stderr. Of a long log only the end is shown; the files are in the run's folder.
    """
    from ddpmon import runs
    from ddpmon.cli.finding import find
    from ddpmon.errors import UsageError
    from ddpmon.logs import Log, Reader, who

    found = find(run)
    if rank is not None and 0 < found.world_size <= rank:
        raise UsageError(f"--rank {rank}: {found.name} ({found.id}) has ranks 0 to {found.world_size - 1}")
    log = Log(Reader(found))
    while True:
        ended = found.state() != "running"
        for entry in log.poll():
            if rank is not None and rank not in entry.ranks:
                continue
            mark = "!" if entry.stream == "err" else " "
            whose = "" if rank is not None else f"{who(entry.ranks, found.world_size):>8} "
            print(f"{whose}{mark} {entry.text}".rstrip(), flush=True)
        if ended or not follow:
            return
        time.sleep(0.3)
        found = runs.load(found.id)
