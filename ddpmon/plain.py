"""Makes text from outside safe to print by removing escape sequences and other control characters.

Names, errors, scripts and logs are made plain where lines are built from them. In addition, everything that a command
prints to a terminal passes through `PlainOutput`, including texts of click and of Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, TextIO

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)
_MARKS = 4
"""Largest number of combining accents per letter. A terminal would draw hundreds of them over neighbouring lines."""


def plain(line: str) -> str:
    """Return one line without colours, cursor movements and other control characters."""
    if line.isascii() and line.isprintable():
        return line
    spaced = _ESCAPES.sub("", line).replace("\t", "    ")
    return few_marks("".join(letter if letter.isprintable() else "?" for letter in spaced))


def utf8(text: str) -> str:
    """Return the text as it can be sent and stored: characters that are not UTF-8, as in file names, become "?"."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def few_marks(text: str) -> str:
    """Return the text with at most `_MARKS` accents over a letter, which is enough for any language."""
    characters, marks = [], 0
    for letter in text:
        marks = marks + 1 if unicodedata.combining(letter) else 0
        if marks <= _MARKS:
            characters.append(letter)
    return "".join(characters)


class PlainOutput:
    """A stream to a terminal that makes every line plain."""

    def __init__(self, stream: TextIO, shown: Callable[[str], str] = str) -> None:
        """Wrap a stream. `shown` converts plain text to what this terminal can show."""
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
