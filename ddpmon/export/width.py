"""Fits text into terminal columns. A wide character takes two columns, a combining character none."""

from __future__ import annotations

import re
import unicodedata

from ddpmon.plain import plain

_BREAKS = re.compile(r"\s*[\r\n\v\f]\s*")


def columns(text: str) -> int:
    """Return how many columns a printable text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    """Return a text cut to one line of at most `width` columns; "…" marks the cut."""
    text = plain(text)
    return text if columns(text) <= width else _beginning(text, width - 1).rstrip() + "…"


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return the text in lines of at most `width` columns; the first begins with `first`, the others with `rest`.

    Lines break at spaces; a word that is longer than a line is split.
    """
    lines = [first]
    begun = False
    for word in plain(_BREAKS.sub(" ", text)).split(" "):
        joined = f"{lines[-1]} {word}" if begun else lines[-1] + word
        if columns(joined) <= width:
            lines[-1] = joined
            begun = begun or bool(word)
            continue
        if begun:
            lines.append(rest)
        uncut = word
        while columns(lines[-1] + uncut) > width:
            part = _beginning(uncut, width - columns(lines[-1])) or uncut[:1]
            lines[-1] += part
            uncut = uncut[len(part) :]
            lines.append(rest)
        lines[-1] += uncut
        begun = bool(word)
    return [line.rstrip() for line in lines]


def _beginning(text: str, width: int) -> str:
    """Return as much of a text's beginning as fits into `width` columns."""
    used = 0
    for at, letter in enumerate(text):
        used += _columns_of(letter)
        if used > width:
            return text[:at]
    return text
