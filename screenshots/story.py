"""Records the demo's story in a terminal and draws it: story.cast (for asciinema play) and story.gif, made from it.

The story is told by `ddpmon demo` itself, in a real terminal, with keys pressed at moments of KEYS. The GIF needs what
the PNGs of make.py need: Debian's librsvg2-bin and fonts-dejavu-core.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import png
import pyte
from PIL import Image
from rich.console import Console
from rich.style import Style
from rich.text import Text

HERE = Path(__file__).parent
CAST, GIF = HERE / "story.cast", HERE / "story.gif"
COLUMNS, ROWS = 100, 30
KEYS = (
    (3.0, "}"), (6.0, " "), (8.0, "2"), (11.0, "3"), (14.0, "5"), (17.0, "6"), (20.0, "9"), (24.0, "1"), (25.0, " "),
    (25.5, "}"), (29.0, "q"),
)  # fmt: skip
"""Seconds since the start, and what is pressed then: to the event that rank 2 is late, held
there, through the screens, and on to its end."""
FRAME_S = 0.5
WIDTH = 800
"""Pixels of the GIF."""
COLOURS = 48
_UNKNOWN_TO_PYTE = re.compile(r"\x1b\[[<>=?][0-9;]*u|\x1b\[\?[0-9;]*\$p|\x1bP[^\x1b]*\x1b\\|\x1b\[[0-9;]*t")


def record() -> None:
    """The demo with its keys, as asciicast v2: a header, then [seconds, "o", what was written]."""
    program = Path(sys.executable).with_name("ddpmon")
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execve(program, [str(program), "demo"], environment)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "ddpmon demo", "env": {"TERM": "xterm-256color"}}
    began, waiting, undecoded = time.monotonic(), list(KEYS), b""
    with CAST.open("w") as cast:
        print(json.dumps(header), file=cast)
        while True:
            now = time.monotonic() - began
            if waiting and now >= waiting[0][0]:
                os.write(terminal, waiting.pop(0)[1].encode())
            if not select.select([terminal], [], [], 0.02)[0]:
                continue
            try:
                undecoded += os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                break
            text, undecoded = _decoded(undecoded)
            print(json.dumps([round(now, 3), "o", text]), file=cast)
    os.waitpid(pid, 0)
    os.close(terminal)


def _decoded(data: bytes) -> tuple[str, bytes]:
    """What can be decoded, and the beginning of a character that is still to come."""
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode(), data[len(data) - cut :]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


def frames() -> Iterator[str]:
    """What the terminal shows, every half second, as SVG."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    due = FRAME_S
    for line in CAST.read_text().splitlines()[1:]:
        at, _, text = json.loads(line)
        if at > KEYS[-1][0]:
            break
        while at > due:
            yield _svg(screen)
            due += FRAME_S
        stream.feed(_UNKNOWN_TO_PYTE.sub("", text))


def _svg(screen: pyte.Screen) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    for row in range(ROWS):
        text = Text(no_wrap=True, end="\n")
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            text.append(cell.data or "", _style(cell))
        console.print(text, soft_wrap=True)
    svg = re.sub(r"\s*@font-face \{.*?\}", "", console.export_svg(title="ddpmon demo"), flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "terminal", svg)  # Rich numbers them by what they hold


def _style(cell: pyte.screens.Char) -> Style:
    def colour(name: str) -> str | None:
        if name == "default":
            return None
        return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name.replace("brown", "yellow")

    return Style(color=colour(cell.fg), bgcolor=colour(cell.bg), bold=cell.bold, reverse=cell.reverse)


def draw() -> None:
    """The GIF: each picture as long as it stood."""
    pictures: list[Image.Image] = []
    lengths_ms: list[int] = []
    shown = ""
    for svg in frames():
        if svg == shown:
            lengths_ms[-1] += round(1000 * FRAME_S)
            continue
        shown = svg
        image = Image.open(io.BytesIO(png.png(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)))).convert(
            "RGB"
        )
        small = image.resize((WIDTH, image.height * WIDTH // image.width), Image.Resampling.LANCZOS)
        pictures.append(small.quantize(COLOURS, dither=Image.Dither.NONE))
        lengths_ms.append(round(1000 * FRAME_S))
    pictures[0].save(GIF, save_all=True, append_images=pictures[1:], duration=lengths_ms, loop=0, optimize=True)
    print(f"{GIF.name}: {len(pictures)} pictures, {GIF.stat().st_size:,} bytes; {CAST.name}: {CAST.stat().st_size:,}")
