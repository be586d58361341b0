"""ddpmon export: writes a recording in formats of other tools."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from ddpmon import runs
from ddpmon.analysis.words import format_count
from ddpmon.cli.options import WholeNumber, drafted, output_option, run_argument
from ddpmon.errors import HubUnreachableError, UsageError
from ddpmon.runs import Run

EXPORT_HELP = """Export the recording of a run for other tools.

    \b
    csv          one row per rank and step
    parquet      the same for pandas, Polars and DuckDB
                 (pip install 'ddpmon[parquet]')
    perfetto     a trace for ui.perfetto.dev: a track per rank, a slice
                 per phase; --last 1000 keeps it small
    openmetrics  the run's state now, for Prometheus

    The first step of each process includes one-off work such as warm-up. If a step updates several models, its loss is
    the sum of their losses. RUN is a run's name or the beginning of its id; the default is the latest run.
"""


@click.command(help=EXPORT_HELP)
@run_argument("run", required=False)
@click.option("--format", "form", type=click.Choice(["csv", "openmetrics", "parquet", "perfetto"]), required=True)
@output_option("Write to FILE instead of standard output.")
@click.option("--last", type=WholeNumber(1), metavar="STEPS", help="Export only the last STEPS steps.")
def export(run: str | None, form: str, output: Path | None, last: int | None) -> None:
    """Write a recording to standard output or a file."""
    if last is not None and form == "openmetrics":
        raise UsageError("--last works only with formats that list steps, and --format openmetrics does not")
    if output is None and form == "parquet":
        raise UsageError("--format parquet needs --output FILE")
    target = runs.find(run)
    with drafted(output) as draft:
        if form == "openmetrics":
            with _opened(draft) as file:
                _write_state(target, file)
        else:
            _write_steps(target, form, last, draft)


def _write_state(run: Run, file: TextIO) -> None:
    from ddpmon.export import openmetrics
    from ddpmon.recording.recorded import recorded_snapshot
    from ddpmon.source import snapshot_now

    snapshot = snapshot_now(run) if run.state() == "running" else recorded_snapshot(run)
    if snapshot is None:
        elsewhere = run.elsewhere() or f"is {run.state()}"
        raise HubUnreachableError(f"{run.name} ({run.id}) {elsewhere}, and the hub of this run does not answer")
    file.write(openmetrics.text(snapshot))


def _write_steps(run: Run, form: str, last: int | None, output: Path | None) -> None:
    from ddpmon.export import rows, trace
    from ddpmon.export.steps import pieces
    from ddpmon.recording.recording import Recording

    with Recording(run) as recording:
        if last is None and (merged := recording.steps.count_merged()):
            print(
                f"ddpmon: the export lacks {format_count(merged, 'older step record')} of {run.name} ({run.id}): the"
                " recording has only their means over minutes or hours (table rollup in telemetry.db)",
                file=sys.stderr,
            )
        piece_iterator = pieces(recording, last)
        if form == "parquet" and output is not None:
            rows.write_parquet(piece_iterator, recording.clock, output)
        else:
            with _opened(output) as file:
                if form == "csv":
                    rows.write_csv(piece_iterator, recording.clock, file)
                else:
                    trace.write(piece_iterator, run.name, file)
    if recording.is_damaged:
        print(f"ddpmon: {recording.path} is damaged; the export contains only its readable parts", file=sys.stderr)


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """Open a file for text; without a path, yield standard output."""
    if path is None:
        yield sys.stdout
    else:
        with path.open("w", encoding="utf-8") as file:
            yield file
