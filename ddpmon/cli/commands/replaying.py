"""ddpmon replay and demo: play a recording in the dashboard, with a time cursor."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click

import ddpmon
from ddpmon import runs
from ddpmon.cli.options import Within, run_argument, theme
from ddpmon.errors import UsageError
from ddpmon.runs import Run

SHIPPED = Path(ddpmon.__file__).parent / "demo"
"""The recording that the package includes; `screenshots/make.py --demo` creates it."""
DEMO_SPEED = 4.0
_SPEED: dict[str, Any] = {
    "type": Within(0.125, 1024),
    "metavar": "X",
    "show_default": True,
    "help": "Playback speed; 2 plays the run at twice its real speed. The keys < and > change the playback speed.",
}


@click.command()
@run_argument("run", required=False)
@click.option("--speed", default=1.0, **_SPEED)
@theme
def replay(run: str | None, speed: float) -> int:
    """Play the recording of a run in the dashboard.

    \b
    Keys:
      space   pause and play
      [ ]     move back and forward in time
      { }     jump to the previous and the next event
      , .     go back and forward by one step
      < >     slower and faster
    """
    _terminal("replay", "ddpmon report RUN prints the report")
    return _play(runs.find(run), speed)


@click.command()
@click.option("--speed", default=DEMO_SPEED, **_SPEED)
@theme
def demo(speed: float) -> int:
    """Play a recorded run of four ranks, one of them slow for a while. The demo needs no torch and no GPU."""
    _terminal("demo", "ddpmon run --headless --nproc 4 SCRIPT prints plain lines")
    with tempfile.TemporaryDirectory(prefix="ddpmon-") as home:
        os.environ["DDPMON_HOME"] = home
        return _play(unpack(), speed)


def unpack() -> Run:
    """Copy the run that ships with ddpmon to the runs of $DDPMON_HOME, and return it."""
    run_id = json.loads((SHIPPED / "run.json").read_text())["id"]
    folder = runs.run_dir(run_id)
    for made in (runs.home(), runs.runs_dir(), folder):
        runs.private_dir(made)
    (folder / "run.json").write_bytes((SHIPPED / "run.json").read_bytes())
    (folder / "telemetry.db").write_bytes(gzip.decompress((SHIPPED / "telemetry.db.gz").read_bytes()))
    for log in SHIPPED.glob("stdout.*.log"):
        of_rank = folder / "logs" / "ranks" / run_id / "attempt_0" / log.name.split(".")[1]
        of_rank.mkdir(parents=True)
        (of_rank / "stdout.log").write_bytes(log.read_bytes())
    return runs.load(run_id)


def _terminal(command: str, instead: str) -> None:
    from ddpmon.cli import watching

    if not watching.interactive():
        raise UsageError(f"{command} opens a dashboard, which needs a terminal; {instead}")


def _play(run: Run, speed: float) -> int:
    from ddpmon.source.replay import ReplaySource
    from ddpmon.tui.app import DdpmonApp, watch
    from ddpmon.tui.preferences import Preferences

    with contextlib.closing(ReplaySource(run, speed)) as source:
        watch(DdpmonApp(source, readonly=True, preferences=Preferences()))
    return 0
