"""Replaces lines, marks and charts by ASCII of the same width if a terminal cannot show them.

A locale without UTF-8 shows several characters for each, or none; the font of the Linux console lacks most of them.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache

from ddpmon import proc

_ASCII = {
    **dict.fromkeys("─‖–—", "-"), "━": "=", "╌": "_", "═": "#", "│": "|", **dict.fromkeys("└┘┌┐├┤┴┬┼", "+"),
    **dict.fromkeys("▁▂", "_"), **dict.fromkeys("▃▄▅", "="), **dict.fromkeys("▆▇", "%"), "█": "#",
    "░": ":", "▒": "%", "·": ".", "…": "~", "°": "d", "×": "x", "µ": "u",
    "▲": "!", "✖": "X", "✔": "+", "■": "#", "●": "*", "○": "o", "◌": "o", "◔": "1", "◑": "2", "◕": "3", "◆": "@",
    **dict.fromkeys("▶›→", ">"), **dict.fromkeys("◂←⏎", "<"), **dict.fromkeys("▴↑⇧", "^"), **dict.fromkeys("▾↓", "v"),
    "⇄": "x", "↺": "R", "◉": "@",
}  # fmt: skip
_BRAILLE = 0x2800
_UPPER, _LOWER = 0b0001_1011, 0b1110_0100
"""Dots in the upper and in the lower two rows of a braille character."""


def started_with() -> dict[str, str]:
    """Return the environment with LC_CTYPE as this process was started; Python replaces "C" (PEP 538)."""
    ctype = _ctype_at_start()
    return dict(os.environ) if ctype is None else {**os.environ, "LC_CTYPE": ctype}


@cache  # Cached, because the value is constant and takes milliseconds to read on some systems.
def _ctype_at_start() -> str | None:
    """Return the LC_CTYPE at the process's start; None if it is unknown."""
    at_start = proc.environment("self")
    return at_start.get("LC_CTYPE", "") if at_start else None


def in_ascii(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal shows only ASCII, according to its name and the locale.

    A missing locale does not mean ASCII, except in tmux and screen: without a UTF-8 locale they take text for single
    bytes.
    """
    if environ.get("TERM") == "linux":
        return True
    locale = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environ.get(name))), "")
    if not locale:
        return "TMUX" in environ or "STY" in environ
    return not locale.lower().replace("-", "").endswith("utf8")


@lru_cache(4096)
def ascii_for(text: str) -> str:
    """Return the text in ASCII, in as many columns."""
    return text if text.isascii() else "".join(map(_for, text))


def _for(character: str) -> str:
    from rich.cells import cell_len  # Only here does `ddpmon ls` need this module.

    columns = cell_len(character)
    dots = ord(character) - _BRAILLE
    if 0 <= dots < 256:
        upper, lower = dots & _UPPER, dots & _LOWER
        return ":" if upper and lower else "'" if upper else "." if lower else " "
    letter = _ASCII.get(character) or unicodedata.normalize("NFKD", character)[0]
    return (letter if letter.isascii() and letter.isprintable() else "?" * columns).ljust(columns)[:columns]
