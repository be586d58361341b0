"""Makes the pictures of this folder.

    python screenshots/make.py            write them
    python screenshots/make.py --check    fail if one is not what the screen shows now

Each is a screen of the dashboard on the recording that ships with the package, a real run of four ranks, at a moment
when one of them is late. A test makes them again and compares, so that no picture tells of an older dashboard.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # read when textual is imported: the picture has no terminal to ask

from ddpmon.cli.replaying import unpack
from ddpmon.hub.player import Player
from ddpmon.logs import Log, Reader
from ddpmon.messages import Wish
from ddpmon.runs import Run
from ddpmon.source import FakeSource
from ddpmon.tui.app import DdpmonApp

HERE = Path(__file__).parent
LARGE, SMALL = (120, 36), (80, 24)
SCREENS = {
    "world": ("1", LARGE),
    "world-80x24": ("1", SMALL),
    "ranks": ("2", LARGE),
    "heat": ("3", LARGE),
    "comm": ("4", LARGE),
    "timeline": ("5", LARGE),
    "devices": ("6", LARGE),
    "logs": ("7", LARGE),
    "inspect": ("enter", LARGE),
}
"""The key that leads to each, and the size of the terminal. Runs is not among them: it shows the reader's own."""
FRAME_S = 0.6
"""A little more than the dashboard's own."""
EMPTY: Mapping[str, str] = MappingProxyType({})
STEP = 760
"""The moment: rank 2 has been late for 300 steps."""


class Moment(FakeSource):
    """A recorded run at one moment, as a live one looks."""

    def __init__(self, run: Run, step: int) -> None:
        self._player = Player(run)
        self._at = self._player.first_step
        while (now := self._player.at(self._at)).step < step:
            self._at = self._player.step_from(self._at, 1) if step - now.step < 5 else self._at + 0.25
        super().__init__(now)
        self._log = Log(Reader(run))

    def wish(self, wish: Wish) -> None:
        """Granted at once."""
        if wish != self.wished:
            self.wished = wish
            self.current = self._player.at(self._at, wish)

    def close(self) -> None:
        self._player.close()


def self_contained(svg: str) -> str:
    """The picture with the viewer's own monospaced font, instead of one fetched from elsewhere."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code,", "'Fira Code','DejaVu Sans Mono',Menlo,Consolas,")


async def taken(moment: Moment, key: str, size: tuple[int, int], expected: str | None = None) -> str:
    """A screen as SVG, once it looks as expected; else once it had time enough to draw all that it asks for."""
    app = DdpmonApp(moment)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(FRAME_S)
        await pilot.press(key)
        for _ in range(3 if expected is None else 12):
            await pilot.pause(FRAME_S)
            svg = self_contained(app.export_screenshot(title="ddpmon demo"))
            if svg == expected:
                break
        return svg


def pictures(expected: Mapping[str, str] = EMPTY) -> dict[str, str]:
    """Each screen's picture by its name. expected: what they may look like, which ends the waiting."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-s") as home:
        os.environ |= {"DDPMON_HOME": home, "TZ": "UTC"}
        time.tzset()
        moment = Moment(unpack(), STEP)
        try:
            return {
                name: asyncio.run(taken(moment, key, size, expected.get(name))) for name, (key, size) in SCREENS.items()
            }
        finally:
            moment.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture has drifted")
    check = parser.parse_args().check
    kept = {path.stem: path.read_text() for path in HERE.glob("*.svg")}
    made = pictures(kept if check else EMPTY)
    if not check:
        for name, svg in made.items():
            (HERE / f"{name}.svg").write_text(svg)
    elif drifted := [name for name in kept | made if kept.get(name) != made.get(name)]:
        raise SystemExit(f"not what the dashboard shows now: {', '.join(drifted)}; make them anew and look at them")


if __name__ == "__main__":
    main()
