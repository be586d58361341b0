"""Checks this terminal, and the multiplexer between it and the dashboard."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping

from ddpmon.doctor.check import Check, note, ok
from ddpmon.glyphs import in_ascii

SMALLEST_SCREEN = 60, 12
"""Columns and rows below which the dashboard shows only its first lines."""
COMPLETE_SCREEN = 80, 24
"""Smallest size in columns and rows at which every screen is complete."""
_SHOWS_ALL = f"{COMPLETE_SCREEN[0]}x{COMPLETE_SCREEN[1]} shows all"
_FULL_COLOUR = {"truecolor", "24bit"}
_OPTION_S = 2.0

Option = Callable[[str], str]
"""Function that returns the value of a tmux option; "" if tmux does not answer."""


def terminal(environ: Mapping[str, str], size: os.terminal_size | None, tmux: Option | None = None) -> Iterator[Check]:
    """Check the terminal's size, colours, characters and multiplexer.

    Args:
        environ: Environment variables.
        size: Size of the terminal; None if there is no terminal.
        tmux: Returns options of tmux; None to run tmux for them.

    """
    if size is None:
        yield ok("terminal", "there is no terminal, so ddpmon run prints lines, and the report at the end")
        return
    yield _size(size)
    yield _colours(environ)
    yield _letters(environ)
    if "TMUX" in environ:
        yield from _tmux(tmux or _tmux_option)
    elif "STY" in environ:
        yield note(
            "screen",
            "GNU screen has no clipboard, so the key y of the dashboard copies nothing",
            "use tmux, with set -g set-clipboard on",
        )


def size_here() -> os.terminal_size | None:
    """Return the size of the terminal on standard output; None if that is not a terminal."""
    try:
        return os.get_terminal_size(1)
    except OSError:
        return None


def _size(size: os.terminal_size) -> Check:
    text = f"{size.columns}x{size.lines}"
    if size.columns < SMALLEST_SCREEN[0] or size.lines < SMALLEST_SCREEN[1]:
        return note("size", f"{text} is too small: the dashboard shows only its first lines", _SHOWS_ALL)
    if size.columns < COMPLETE_SCREEN[0] or size.lines < COMPLETE_SCREEN[1]:
        return note("size", f"{text} is too small for some parts of the screens", _SHOWS_ALL)
    return ok("size", text)


def _colours(environ: Mapping[str, str]) -> Check:
    term = environ.get("TERM", "")
    if term in {"", "dumb"}:
        return note(
            "colours",
            f"TERM is {term or '(not set)'}, so ddpmon prints plain lines instead of the dashboard",
            "TERM=xterm-256color",
        )
    if "NO_COLOR" in environ:
        return ok("colours", "no colours, because NO_COLOR is set")
    if environ.get("COLORTERM", "").lower() in _FULL_COLOUR:
        return ok("colours", "16 million")
    if "256" in term or term.endswith(("kitty", "direct")):
        return ok("colours", "256 colours; if your terminal has more, set COLORTERM=truecolor")
    return note(
        "colours",
        f"16 (TERM={term})",
        "if your terminal has more colours, set COLORTERM=truecolor on this machine, because ssh does not pass it on",
    )


def _letters(environ: Mapping[str, str]) -> Check:
    if in_ascii(environ):
        way_out = "if your terminal can show Unicode, set LANG=C.UTF-8"
        return note("letters", "this terminal shows only ASCII, so charts consist of dots and colons", way_out)
    return ok("letters", "Unicode works, so charts have eight dots per character")


def _tmux(option: Option) -> Iterator[Check]:
    if option("set-clipboard") == "off":
        yield note(
            "tmux",
            "tmux's set-clipboard is off, so the key y of the dashboard copies nothing",
            "run tmux set -g set-clipboard on",
        )
    if option("allow-passthrough") not in {"on", "all"}:
        way_out = "to let --notify desktop work in tmux, run tmux set -g allow-passthrough on"
        yield note("tmux", "blocks desktop notifications", way_out)
    else:
        yield ok("tmux", "desktop notifications and the clipboard work")


def _tmux_option(name: str) -> str:
    program = shutil.which("tmux")
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            [program, "show", "-gv", name], capture_output=True, text=True, timeout=_OPTION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()
