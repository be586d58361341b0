"""Makes pictures of the dashboard as SVG, text or PNG, with or without a terminal."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable

from textual.app import App
from textual.pilot import Pilot

from ddpmon.errors import UsageError
from ddpmon.tui.showing import ShowingApp

FONT = "DejaVu Sans Mono"
CELL_WIDTH, CELL_HEIGHT = 12.2, 24.4
"""Width and height of a character cell in Rich's SVG, in pixels."""
ABOVE_BASELINE = 18.5
ADVANCE = 0.60205
"""Width of a character of `FONT`, as a fraction of the font size."""
DOT = 1.9
"""Radius of a braille dot, in pixels."""
_TEXT = re.compile(r'<text class="([^"]*)" x="([^"]*)" y="([^"]*)"([^>]*)>([^<]*)</text>')
_BITS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each dot of a braille character, the lowest bit first."""
PAINT_PAUSE_S = 0.1
"""Seconds after which the changes of a key or a frame are laid out and painted."""
WHOLE_FRAMES = 3
"""Number of consecutive frames without a missing part after which a picture is complete."""


def screen_svg(app: App[None], title: str) -> str:
    """Return the screen as SVG in the viewer's own monospaced font, so that no font is downloaded."""
    drawn = re.sub(r"\s*@font-face \{.*?\}", "", app.export_screenshot(title=title), flags=re.DOTALL)
    return drawn.replace("Fira Code,", "'Fira Code','DejaVu Sans Mono',Menlo,Consolas,")


def screen_text(app: App[None]) -> str:
    """Return the screen as text, without spaces at the ends of lines."""
    return "\n".join(row.text.rstrip() for row in app.screen._compositor.render_strips())  # noqa: SLF001


async def draw_until(
    app: ShowingApp,
    size: tuple[int, int],
    keys: Iterable[str],
    look: Callable[[], bool],
    *,
    frames: int | None = None,
    within_s: float = 0.0,
    pause_s: float = PAINT_PAUSE_S,
) -> bool:
    """Run a dashboard without a terminal until `look` accepts the screen; return whether it did.

    Args:
        app: The dashboard.
        size: Columns and lines of its screen.
        keys: Keys that are pressed first, as Textual names them.
        look: Inspects the screen after each frame, and may take its picture; returns true to end the dashboard.
        frames: Maximum number of frames; None for as many as fit into `within_s`.
        within_s: Longest time for all frames in seconds, if `frames` is None.
        pause_s: Seconds between two frames.

    """

    async def frame(pilot: Pilot[None]) -> None:
        app.tick()
        await pilot.pause(pause_s)

    async with app.run_test(size=size) as pilot:
        await frame(pilot)
        for key in keys:
            await pilot.press(key)
            await frame(pilot)
        await app.workers.wait_for_complete()
        end, looks = time.monotonic() + within_s, 0
        while looks < frames if frames is not None else time.monotonic() < end:
            await frame(pilot)
            looks += 1
            if look():
                return True
    return False


def completeness_check(app: ShowingApp) -> Callable[[], bool]:
    """Return a function for `look` in `draw_until`. It returns true once the screen has had all its parts for
    `WHOLE_FRAMES` frames.
    """
    frames = 0

    def look() -> bool:
        nonlocal frames
        there = app.playback.newest is not None and "coming…" not in screen_text(app)
        frames = frames + 1 if there else 0
        return frames >= WHOLE_FRAMES

    return look


def drawable(picture: str) -> str:
    """Return an SVG that rsvg-convert can draw: with a font of this machine, and braille characters drawn as dots."""
    drawn = _TEXT.sub(_with_dots, picture).replace("font-size: 20px", f"font-size: {CELL_WIDTH / ADVANCE:.3f}px")
    drawn = re.sub(r"font-family: '[^;]*;", f"font-family: '{FONT}';", drawn)
    return drawn.replace("font-family: arial", f"font-family: '{FONT}'")


def _with_dots(found: re.Match[str]) -> str:
    """Return an SVG text element, with each braille character replaced by drawn dots."""
    role, x, y, rest, shown = found.groups()
    shown = html.unescape(shown)
    dots = []
    for place, character in enumerate(shown):
        bits = ord(character) - 0x2800
        if not 0 < bits < 256:
            continue
        left, top = float(x) + place * CELL_WIDTH, float(y) - ABOVE_BASELINE
        dots += [
            f"M{left + CELL_WIDTH * (0.27 + 0.46 * column) - DOT:.2f} {top + CELL_HEIGHT * (row + 0.5) / 4:.2f}"
            f"a{DOT} {DOT} 0 1 0 {2 * DOT} 0a{DOT} {DOT} 0 1 0 {-2 * DOT} 0"
            for bit, (column, row) in enumerate(_BITS)
            if bits >> bit & 1
        ]
    path = f'<path class="{role}" d="{"".join(dots)}"/>' if dots else ""
    plain = html.escape(re.sub("[\u2800-\u28ff]", "\u00a0", shown))
    return f'<text class="{role}" x="{x}" y="{y}" xml:space="preserve"{rest}>{plain}</text>{path}'


def svg_to_png(picture: str) -> bytes:
    """Return an SVG as PNG.

    Raises:
        UsageError: This machine lacks rsvg-convert or the font, or rsvg-convert failed.

    """
    if shutil.which("rsvg-convert") is None:
        raise UsageError("PNGs need rsvg-convert, which is missing: install librsvg2-bin, or write an .svg or a .txt")
    met = subprocess.run(["fc-match", "-f", "%{family}", FONT], capture_output=True, text=True, check=False).stdout
    if FONT not in met:
        raise UsageError(f"PNGs need the font {FONT}: install fonts-dejavu-core, or write an .svg or a .txt")
    done = subprocess.run(["rsvg-convert"], input=drawable(picture).encode(), capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"rsvg-convert: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
