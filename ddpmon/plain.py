"""Text that came from outside, made safe to print: it may hold whatever a terminal obeys.

Names, errors, scripts and logs are made plain where lines are made of them. Beneath that, `PlainOutput` is the one door
to a terminal for all that a command prints, words of click and of Python included.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, TextIO

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)
_MARKS = 4
"""Accents over one letter; hundreds are drawn over the lines around it."""


def plain(line: str) -> str:
    """One line without colours, cursor movements and other control characters."""
    if line.isascii() and line.isprintable():
        return line
    spaced = _ESCAPES.sub("", line).replace("\t", "    ")
    return few_marks("".join(letter if letter.isprintable() else "?" for letter in spaced))


def utf8(text: str) -> str:
    """The text as it can be sent and stored: what is no UTF-8, as in names of files, is "?"."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def few_marks(text: str) -> str:
    """The text with no more marks over a letter than any language has."""
    characters, marks = [], 0
    for letter in text:
        marks = marks + 1 if unicodedata.combining(letter) else 0
        if marks <= _MARKS:
            characters.append(letter)
    return "".join(characters)


class PlainOutput:
    """A stream to a terminal that takes lines of plain text and makes everything else plain."""

    def __init__(self, stream: TextIO, shown: Callable[[str], str] = str) -> None:
        """shown: what stands for a text that is plain on this terminal."""
        self._stream = stream
        self._shown = shown

    def write(self, text: str) -> int:
        self._stream.write("\n".join(self._shown(plain(line)) for line in text.split("\n")))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
