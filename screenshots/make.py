"""Makes the pictures of this folder, and what they are made from.

    python screenshots/make.py                 write all screens, as SVG and PNG
    python screenshots/make.py world comm      write these
    python screenshots/make.py --check         fail if one is not what the screen shows now
    python screenshots/make.py --demo          first record the run that `ddpmon demo` plays anew (demo.py)
    python screenshots/make.py --story         also record the demo in a terminal, and draw it (story.py)

Each is a scene of the dashboard on the recording that ships with the package, a real run of four ranks, at a moment
when one of them is late. Where several runs are shown, the others are pieces of it: its late steps and its last ones.
A test makes them again and compares, so that no picture tells of an older dashboard. PNGs are made from the SVGs and
hold their digest, so that comparing them needs nothing that draws.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from unittest.mock import patch

os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # read when textual is imported: the picture has no terminal to ask

import demo
import png
import story

from ddpmon import runs
from ddpmon.cli.commands.replaying import unpack
from ddpmon.launch.last_launch import LaunchForm, store_form
from ddpmon.messages import ViewRequest
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_report
from ddpmon.recording.recording import recording_path
from ddpmon.runs import Run
from ddpmon.runs.logs import Log, Reader
from ddpmon.tui import picture
from ddpmon.tui.app import DdpmonApp
from tests.fake_source import FakeSource

HERE = Path(__file__).parent
LARGE, SMALL = (120, 36), (80, 24)
STEP = 760
"""Rank 2 has been late for 300 steps."""


@dataclass(frozen=True)
class Scene:
    """What is in a picture: keys pressed one after the other, in a terminal of a size, at a step of the run."""

    keys: tuple[str, ...]
    """As Textual names them."""
    size: tuple[int, int] = LARGE
    step: int = STEP
    unwatched: bool = False
    """A job trains without ddpmon."""


SCENES = {
    "world": Scene(("1",)),
    "world-80x24": Scene(("1",), SMALL),
    "chart": Scene(("z", "M", "M", *["left"] * 20)),
    "ranks": Scene(("2",)),
    "heat": Scene(("3",)),
    "comm": Scene(("4",)),
    "timeline": Scene(("5",)),
    "devices": Scene(("6",)),
    "logs": Scene(("7",)),
    "runs": Scene(("8",)),
    "attach": Scene(("8", "g", "enter"), unwatched=True),
    "launch": Scene(("8", "n")),
    "findings": Scene(("9",)),
    "compare": Scene(("8", "G", "c", "up", "c")),
    "inspect": Scene(("enter",)),
}
PIECES = {"line-slow": (460, 799, 40), "line-fixed": (810, 1240, 20)}
"""Runs made of some steps of the shipped one: the first, the last, and how many minutes before it they began."""
LAUNCH = LaunchForm("train.py", "--epochs 3 --batch-size 64", "4", "baseline", "OMP_NUM_THREADS=1", "/home/you/project")
PID = 4711
SEEN_AFTER_S = 600.0
"""When the list of runs is looked at, after the beginning of the shipped run."""
AGAIN_S = 0.01
"""Between two looks at a picture that is to be an expected one."""
EMPTY: Mapping[str, str] = MappingProxyType({})


class Moment(FakeSource):
    """A recorded run at one moment, as a live one looks."""

    def __init__(self, run: Run, step: int) -> None:
        self._player = Player(run)
        self._at = self._player.first_step
        while (now := self._player.snapshot_at(self._at)).step < step:
            self._at = self._player.step_from(self._at, 1) if step - now.step < 5 else self._at + 0.25
        super().__init__(now)
        self._log = Log(Reader(run))

    def request_view(self, view_request: ViewRequest) -> None:
        """Granted at once."""
        if view_request != self.requested:
            self.requested = view_request
            self.current = self._player.snapshot_at(self._at, view_request)

    def close(self) -> None:
        self._player.close()


async def taken(moment: Moment, scene: Scene, expected: str | None = None) -> str:
    """A scene as SVG, once it looks as expected; else after as many frames as it may take to have all it asks for."""
    app = DdpmonApp(moment)
    looks: list[str] = []

    def look() -> bool:
        looks.append(picture.screen_svg(app, "ddpmon demo"))
        return looks[-1] == expected

    waits = {"frames": 3} if expected is None else {"frames": 100, "pause_s": AGAIN_S}
    await picture.draw_until(app, scene.size, scene.keys, look, **waits)
    return looks[-1]


def pictures(names: Iterable[str], expected: Mapping[str, str] = EMPTY) -> dict[str, str]:
    """Each scene's picture by its name. expected: what they may look like, which ends the waiting."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-s") as home, contextlib.ExitStack() as opened:
        os.environ |= {"DDPMON_HOME": home, "TZ": "UTC"}
        time.tzset()
        run = unpack()

        @cache
        def moment(step: int) -> Moment:
            return opened.enter_context(contextlib.closing(Moment(run, step)))

        for name in PIECES:
            piece(run, name)
        tell_verdict(run)
        store_form(LAUNCH)
        clock = SimpleNamespace(time=lambda: run.created_at + SEEN_AFTER_S, monotonic=time.monotonic)
        made = {}
        for name in names:
            jobs = [(PID, unwatched(run))] if SCENES[name].unwatched else []
            with (
                patch("ddpmon.tui.widgets.runlist.time", clock),
                patch("ddpmon.source.place.unwatched", lambda _, jobs=jobs: jobs),
            ):
                made[name] = asyncio.run(taken(moment(SCENES[name].step), SCENES[name], expected.get(name)))
        return made


def unwatched(run: Run) -> Run:
    """A job that has trained for three days without ddpmon, as a row of Runs."""
    return replace(
        run,
        id=f"pid {PID}",
        name="train",
        script="train.py",
        script_args=["--epochs", "90", "--batch-size", "64"],
        cwd=LAUNCH.folder,
        created_at=run.created_at + SEEN_AFTER_S - 3 * 86_400.0,
        ended_at=None,
        exit_code=None,
    )


def piece(run: Run, name: str) -> None:
    """A run of its own, made of some steps of a recorded one."""
    first, last, minutes = PIECES[name]
    earlier = 60.0 * minutes
    made = replace(
        run,
        id=f"{run.id[:-4]}{minutes:04x}",
        name=name,
        created_at=run.created_at - earlier,
        ended_at=run.ended_at - earlier,
    )
    runs.create(made)
    path = shutil.copy(recording_path(run.id), recording_path(made.id))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'run_id'", (made.id,))
        db.execute("UPDATE meta SET value = value - ? WHERE key = 'unix'", (earlier,))
        db.execute("DELETE FROM step_blocks WHERE last_step < ? OR first_step > ?", (first, last))
        db.execute("DELETE FROM checkpoints")
        db.execute("DELETE FROM events")
    tell_verdict(made)


def tell_verdict(run: Run) -> None:
    """Write its report, as a hub does at the end."""
    (runs.run_dir(run.id) / "report.json").write_text(json.dumps(recorded_report(run)))


def write(made: Mapping[str, str]) -> None:
    """Into this folder, as SVG and as PNG; says how large it has become."""
    for name, svg in made.items():
        (HERE / f"{name}.svg").write_text(svg)
        (HERE / f"{name}.png").write_bytes(png.png(svg))
    pngs = list(HERE.glob("*.png"))
    whole = sum(path.stat().st_size for path in [*HERE.glob("*.svg"), *pngs])
    largest = max(pngs, key=lambda path: path.stat().st_size)
    print(
        f"{len(made)} pictures; all of them {whole:,} bytes, {largest.name} the largest with {largest.stat().st_size:,}"
    )


def drifted(kept: Mapping[str, str], made: Mapping[str, str]) -> list[str]:
    """Files of this folder that are not what is made now, or miss, or belong to no scene."""
    wrong = [f"{name}.svg" for name in kept | made if kept.get(name) != made.get(name)]
    pngs = {path.stem for path in HERE.glob("*.png")}
    stale = [name for name, svg in kept.items() if png.shows(HERE / f"{name}.png") != png.digest(svg)]
    return wrong + [f"{name}.png" for name in sorted(pngs - kept.keys() | set(stale))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scene", nargs="*", help=f"these alone, of {', '.join(SCENES)}")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture has drifted")
    parser.add_argument("--demo", action="store_true", help="first record the run that they show")
    parser.add_argument("--story", action="store_true", help="also record the demo in a terminal, and draw it")
    args = parser.parse_args()
    if unknown := set(args.scene) - SCENES.keys():
        parser.error(f"no scene {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    if args.demo:
        demo.make()
    if not args.check:
        write(pictures(args.scene or SCENES))
        if args.story:
            story.record()
            story.draw()
        return
    kept = {path.stem: path.read_text() for path in HERE.glob("*.svg")}
    if wrong := drifted(kept, pictures(SCENES, kept)):
        raise SystemExit(f"not what the dashboard shows now: {', '.join(wrong)}; make them anew and look at them")


if __name__ == "__main__":
    main()
