"""ddpmon ls, logs and report: show current and past runs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ddpmon import config, runs
from ddpmon.cli import reaching
from ddpmon.cli.options import WholeNumber, run_argument
from ddpmon.cli.reaching import find, over_ssh
from ddpmon.cli.streams import output_columns, prose_columns
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.export.width import cut, wrapped
from ddpmon.plain import plain
from ddpmon.remote.address import parse

if TYPE_CHECKING:
    from ddpmon.runs import Run
    from ddpmon.runs.logs import Log

FETCH_S = 5.0
"""Longest time, in seconds, to wait for the output of a rank on another machine."""
HUBS_AT_ONCE = 8
HUB_ANSWER_S = 1.0
"""Longest time, in seconds, that `ls` waits for a hub: a live one answers within 0.1 s."""


@click.command()
@click.argument("machine", required=False, metavar="[USER@HOST|HOST:]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def ls(machine: str | None, as_json: bool) -> int:
    """List your runs on this or another machine, the latest first.

    If a run has not ended, its state is waiting, running, slow or stalled; in --json, this is live_state. STATE is
    "unknown" for a run that started in another container, or on another machine that shares the folder. ddpmon cannot
    see whether an unknown run has ended.

    Jobs that train here without ddpmon come last. In --json their state is "unwatched", their id is null, and their
    pid is the value for attach --pid.
    """
    if machine is not None:
        address = parse(machine)
        if address is None or address.run is not None:
            raise UsageError(
                f"ls {machine}: ls lists all runs of a machine; give the machine as USER@HOST or HOST: without a run"
            )
        return reaching.as_typed(address, machine)
    everything, damaged = runs.all_and_damaged()
    shown = everything[::-1]
    live = _live_states(shown)
    if as_json:
        from ddpmon.attach.start import unwatched

        facts = [_facts(run) | {"live_state": live.get(run.id), "pid": None} for run in shown]
        jobs = unwatched(everything)
        facts += [_facts(run) | {"id": None, "state": "unwatched", "live_state": None, "pid": pid} for pid, run in jobs]
        print(json.dumps(facts, indent=1))
    elif not shown and not damaged:
        _print_sentence(runs.none_yet())
    else:
        rows: list[tuple[str, ...]] = [("ID", "NAME", "STATE", "RANKS", "STARTED", "TOOK", "COMMAND")]
        rows += [tuple(map(plain, _row(run, live.get(run.id)))) for run in shown]
        _print_table(rows)
        for run in shown:
            if elsewhere := run.elsewhere():
                _print_sentence(f"{run.id} {elsewhere}")
        sys.stdout.flush()
        if os.environ.get("DDPMON_KEEP"):
            _warn_near_bound()
    if not as_json:
        _print_unwatched(everything)
    for why in damaged:
        print("ddpmon:", plain(why), file=sys.stderr)
    return 0


def _print_unwatched(everything: list[Run]) -> None:
    """Print the jobs that train on this machine without ddpmon."""
    from ddpmon.attach.jobs import unwatched

    jobs = unwatched(everything)
    if not jobs:
        return
    rows: list[tuple[str, ...]] = [("PID", "RANKS", "AGE", "COMMAND")]
    rows += [
        (str(job.pid), str(len(job.ranks)), _duration(time.time() - job.started_at), " ".join(job.command))
        for job in jobs
    ]
    print()
    _print_sentence("jobs that train on this machine without ddpmon; ddpmon attach --pid PID watches one")
    _print_table([tuple(map(plain, row)) for row in rows])


def _print_sentence(text: str) -> None:
    """Print a sentence in lines that fit the terminal, or in one line."""
    print("\n".join(wrapped(text, output_columns())))


def _print_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns, each as wide as its longest cell. The last column is not padded. On a terminal, lines are
    cut at the terminal's width.
    """
    room = output_columns(0)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, last in rows:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        line = "  ".join([*padded, last]).rstrip()
        print(cut(line, room) if room else line)


def _warn_near_bound() -> None:
    """Print a line on stderr if the stored runs are near or over the limit in $DDPMON_KEEP, or the limit is invalid."""
    from ddpmon.launch import removal

    try:
        bound = removal.limit_from_environment()
    except UsageError as error:
        print("ddpmon:", config.with_origin(str(error)), file=sys.stderr)
        return
    if bound is None:
        return
    plan = removal.plan_pruning(bound)
    if plan.going:
        total = removal.sum_text(plan.going)
        print(
            f"ddpmon: all runs together exceed the limit of {bound.text} ({removal.KEEP_VARIABLE}); the next "
            f"ddpmon run will delete {total}, the oldest first; ddpmon prune --dry-run lists these runs",
            file=sys.stderr,
        )
    elif plan.near:
        print(f"ddpmon: {plan.near}", file=sys.stderr)


def _facts(run: Run) -> dict[str, object]:
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state(),
        "stopping": run.winding_down and not run.ended,
        "world_size": run.world_size or None,
        "nnodes": run.nnodes,
        "script": run.script,
        "script_args": run.script_args,
        "started_at": run.created_at,
        "ended_at": run.ended_at,
        "exit_code": run.shell_code,
        "host": run.host,
        "elsewhere": run.elsewhere(),
    }


def _live_states(listed: list[Run]) -> dict[str, str]:
    """Return the states that the hubs of running runs report, by run id: "slow", "stalled", and others.

    Hubs that do not answer are left out.
    """
    running = [run for run in listed if run.state() == "running" and not run.stopping]
    if not running:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=min(len(running), HUBS_AT_ONCE)) as asking:
        return {run_id: state for run_id, state in asking.map(_live_state, running) if state}


def _live_state(run: Run) -> tuple[str, str]:
    from ddpmon.source import snapshot_now

    try:
        shot = snapshot_now(run, HUB_ANSWER_S)
    except DdpmonError:
        shot = None
    return run.id, "" if shot is None else shot.state


def _row(run: Run, live_state: str | None) -> tuple[str, ...]:
    state = run.state()
    started = time.strftime("%m-%d %H:%M", time.localtime(run.created_at))
    took = "?" if state in {"lost", "unknown"} else _duration((run.ended_at or time.time()) - run.created_at)
    return (
        run.id,
        plain(run.name),
        "stopping" if state == "running" and run.winding_down else live_state or state,
        str(run.world_size or "?"),
        started,
        took,
        " ".join([run.script, *run.script_args]),
    )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(max(0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d{hours % 24:02d}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s"


@click.command()
@run_argument("run", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json", "md", "html"]), default="text", show_default=True)
@over_ssh
def report(run: str | None, form: str) -> None:
    """Report what happened in a run, and what to do about it.

    \b
    Formats:
      text   for the terminal
      md     Markdown, for a pull request or a chat
      html   a page with charts: ddpmon report --format html > run.html
      json   everything, for programs
    """
    from ddpmon.export import markdown
    from ddpmon.export import report as reports

    target = find(run)
    if form == "html":
        from ddpmon.export import page

        # Write UTF-8 in any locale, because the page declares this encoding.
        click.echo(page.of(target).encode("utf-8", "replace"), nl=False)
        return
    built = reports.build(target)
    if form == "json":
        print(json.dumps(built, indent=1))
    else:
        print(reports.text(built, prose_columns()) if form == "text" else markdown.report(built))


@click.command()
@run_argument("run", required=False)
@click.option("--rank", type=WholeNumber(0), metavar="K", help="Print only the output of the rank with this number.")
@click.option("-f", "--follow", is_flag=True, help="Continue to print new lines until the run ends.")
@over_ssh
def logs(run: str | None, rank: int | None, follow: bool) -> None:
    """Print the output of the ranks on this machine.

    A line that several ranks print appears once. The mark "!" stands before lines from stderr. ddpmon prints only the
    end of a long log; the complete files are in the run's folder. During the run, --rank also fetches the last lines of
    a rank on another machine.
    """
    from ddpmon.runs.logs import Log, Reader, written

    target = find(run)
    if rank is not None and 0 < target.world_size <= rank:
        raise UsageError(f"--rank {rank}: the run {target.name} ({target.id}) has ranks 0 to {target.world_size - 1}")
    log = Log(Reader(target))
    entries = log.poll()
    with contextlib.ExitStack() as opened:
        is_here = rank is None or any(rank in entry.ranks for entry in entries)
        if rank is not None and not is_here and target.state() == "running":
            log = opened.enter_context(_fetched(target, rank))
            entries = log.poll()
        while True:
            ended = target.state() != "running"
            for entry in entries:
                if rank is not None and rank not in entry.ranks:
                    continue
                print(written(entry, target.world_size, labelled=rank is None), flush=True)
            if ended or not follow:
                return
            time.sleep(0.3)
            target = runs.load(target.id)
            entries = log.poll()


@contextlib.contextmanager
def _fetched(run: Run, rank: int) -> Iterator[Log]:
    """Yield the log of a rank on another machine, once the hub has sent it. If there is none, print why on stderr."""
    from ddpmon.messages import ViewRequest
    from ddpmon.source.live import LiveSource

    with contextlib.closing(LiveSource(run)) as source:
        source.request_view(ViewRequest(printed=rank))
        deadline = time.monotonic() + FETCH_S
        shot = source.snapshot()
        while time.monotonic() < deadline and (shot is None or shot.printed is None or not shot.printed.lines):
            time.sleep(0.05)
            shot = source.snapshot()
        if shot is None or shot.printed is None:
            print(f"ddpmon: the output of rank {rank} is on another machine, and no hub answers", file=sys.stderr)
        elif not shot.printed.lines:
            print(plain(f"ddpmon: rank {rank}: {shot.printed.why}"), file=sys.stderr)
        yield source.logs()
