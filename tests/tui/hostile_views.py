"""Shows snapshots wherever a viewer shows any: on every screen, with keys pressed, and in the command line's texts."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, chdir

import msgspec

from ddpmon.config import NOTIFY
from ddpmon.export import openmetrics, stacks
from ddpmon.export.headless import Lines
from ddpmon.messages import Snapshot, StackView
from ddpmon.runs.logs import Said
from ddpmon.tui.app import DdpmonApp
from ddpmon.tui.notify import sequence
from ddpmon.tui.text import head_text, table_text
from tests.fake_source import FakeSource
from tests.tui.driving import screen_text
from tests.tui.tape import FakeTape

SIZES = ((80, 24), (160, 50))
ODD_SIZES = ((60, 12), (20, 5), (1, 1), (300, 100))
KEYS = (
    "j", "k", "G", "g", "s", "m", "w", "l", "f", "pagedown", "pageup", "space", "[", "]", "y", "p", "enter", "escape",
    "+", "-", "left", "right", "up", "down", "tab", "o", "e", "v", "{", "}", "comma", "full_stop", "?", "b", "M",
)  # fmt: skip


class Shown:
    """A dashboard that goes from one snapshot to the next."""

    def __init__(self, app: DdpmonApp, pilot) -> None:
        self.app, self.pilot = app, pilot

    async def show(self, shot: Snapshot, dice: random.Random) -> None:
        """A snapshot on every screen; AssertionError if something on one can steer the terminal."""
        app = self.app
        source = app.playback.source
        source.silent = dice.choice([0.0, 0.0, 14.0])
        source.tape = dice.choice([None, None, None, FakeTape()])
        source.said = [Said(0, "out", ["step \x1b[2J"])]
        app.playback.held = None
        for size in (*SIZES, *([dice.choice(ODD_SIZES)] if dice.random() < 0.1 else [])):
            if tuple(app.size) != size:
                await self.pilot.resize_terminal(*size)
            source.current = shot
            app.tick()
            for view in app.views:
                await app.action_go(view)
                app.tick()
                assert_plain(screen_text(app))
                await self.pilot.press(dice.choice(KEYS))
                assert self.app._exception is None
                assert_plain(screen_text(app))
                while len(app.screen_stack) > 1:
                    await app.pop_screen()
        app.action_copy()
        await self.pilot.press("enter")
        assert len(app.screen_stack) == 1


def assert_plain(text: str) -> None:
    """Nothing but what a terminal prints, line by line."""
    steering = {ch for ch in text if not ch.isprintable()} - {"\n"}
    assert not steering, f"{steering} on the screen"


def texts(shot: Snapshot) -> Iterator[str]:
    """All that the command line says of a snapshot."""
    for width in (20, 80, 160):
        yield from head_text(shot, width)
        yield from table_text(shot, width)
    lines = Lines(5.0)
    yield from lines.of(shot, 0.0)
    yield from lines.of(shot, 60.0, 60.0)
    for way in NOTIFY:
        assert_plain(re.sub(r"\A\x07?(\x1b\](9|777);[^\x1b]*\x1b\\)*\Z", "", sequence(way, shot, {})))
    told = [*shot.stacks, *(StackView(rank.rank, rank.stack) for rank in shot.ranks if rank.stack)]
    for fresh in (set(), {view.rank for view in told if view.stack}):
        yield from stacks.text(told, fresh, shot.run.world_size, 0.0)
        json.dumps(msgspec.to_builtins(stacks.facts(told, fresh, 0.0)))
    yield from openmetrics.text(shot).split("\n")


@asynccontextmanager
async def dashboard(shot: Snapshot) -> AsyncIterator[Shown]:
    """A dashboard in no terminal."""
    app = DdpmonApp(FakeSource(shot))
    app.leave = lambda: None
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # where copies go
        async with app.run_test(size=SIZES[0]) as pilot:
            yield Shown(app, pilot)
