"""ddpmon status and attach --once: print a run's state at this moment, for people and for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ddpmon.cli.options import run_argument
from ddpmon.cli.reaching import find, over_ssh
from ddpmon.cli.streams import output_columns
from ddpmon.errors import RecordingError
from ddpmon.plain import plain
from ddpmon.runs import run_dir

if TYPE_CHECKING:
    from ddpmon.messages import Snapshot
    from ddpmon.runs import Run

WELL, NEEDS_A_LOOK, FAILED_OR_GONE = range(3)
PIPED_TABLE_COLUMNS = 200
"""Width, in characters, of the rank table in a pipe or a file. All columns fit, and bars fill the remaining width."""


@click.command()
@run_argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@over_ssh
def status(run: str | None, as_json: bool) -> int:
    """Print the state of a run in two lines.

    If the script does not use DDP, a third line says what ddpmon can measure and what it cannot. If the run's
    supervisor process was killed or stopped, ddpmon starts a new one first.

    \b
    Exit codes:
      0   fine: the run waits, runs, stops or has ended, without a warning
      1   needs attention: a warning, also of a run that is done or that
          somebody stopped; slow, stalled, or nothing answers here
      2   failed, or its supervisor is gone
    """
    from ddpmon.source import snapshot_now

    target = find(run)
    snapshot = snapshot_now(target)
    if as_json:
        _print_json(target, snapshot)
    else:
        for line in _head(target, snapshot)[:2]:
            print(line)
        if snapshot is not None and snapshot.measured:
            print(plain(snapshot.measured))
    return exit_code(target, snapshot)


def once(run: Run) -> int:
    """Print the run's current state and rank table; return the exit code of ddpmon status."""
    from ddpmon.source import snapshot_now
    from ddpmon.tui.widgets.ranktable import table_text

    snapshot = snapshot_now(run)
    for line in _head(run, snapshot):
        print(line)
    if snapshot is not None:
        for line in table_text(snapshot, output_columns(PIPED_TABLE_COLUMNS)):
            print(line)
    return exit_code(run, snapshot)


def exit_code(run: Run, snapshot: Snapshot | None) -> int:
    """Return 0 if the run is fine, 1 if it needs attention, 2 if it failed or its supervisor is gone."""
    state = run.state() if snapshot is None else snapshot.state
    if state in {"failed", "lost"}:
        return FAILED_OR_GONE
    if snapshot is None or state in {"slow", "stalled"} or snapshot.severity != "info":
        return NEEDS_A_LOOK
    return WELL


def _head(run: Run, snapshot: Snapshot | None) -> list[str]:
    from ddpmon.tui.head import head_text

    if snapshot is None:
        elsewhere = run.elsewhere()
        return [
            plain(f"? {run.name} ({run.id}) {elsewhere or f'is {run.state()}'}"),
            f"run ddpmon status {run.id} there"
            if elsewhere
            else _why_unknown(run)
            or f"the hub of this run does not answer; see {run_dir(run.id) / 'logs' / 'hub.log'}",
        ]
    return head_text(snapshot, output_columns())


def _why_unknown(run: Run) -> str:
    """Return why the recording of an ended run cannot be read; "" if it can, or the run is running."""
    from ddpmon.recording.recorded import recorded_snapshot

    if run.state() == "running":
        return ""
    try:
        recorded_snapshot(run)
    except RecordingError as error:
        return str(error)
    return ""


def _print_json(run: Run, snapshot: Snapshot | None) -> None:
    import msgspec

    facts: dict[str, object] = {"id": run.id, "name": run.name, "state": run.state()}
    if snapshot is not None:
        facts["state"] = snapshot.state
        fields = (
            "severity", "verdict", "at", "step", "total_steps", "eta_s", "step_ms_p50", "step_ms_max", "loss",
            "all_reduce_ms", "wait_share", "gpu_percent", "samples_per_s", "records_lost", "findings",
            "parallelism", "unmeasured", "measured", "refused",
        )  # fmt: skip
        facts |= {name: getattr(snapshot, name) for name in fields}
        facts |= {"epoch": snapshot.training_epoch, "epochs": snapshot.training_epochs}
        facts["world_size"] = snapshot.run.world_size
        facts["run_exit_code"] = snapshot.run.exit_code
    facts["exit_code"] = exit_code(run, snapshot)
    print(msgspec.json.format(msgspec.json.encode(facts), indent=1).decode())
