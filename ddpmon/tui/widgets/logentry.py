"""Draws a line that ranks printed: who printed it, its text in rows, and what a search found in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from ddpmon.runs.logs import FoldedLine, who
from ddpmon.tui.lines import CURSOR, Line, cut, joined, wrap
from ddpmon.tui.search import Search

_MOST_ROWS = 6
"""Most rows of one entry on the screen, unless a search went to it."""
FOUND = "strong+select"


@dataclass(frozen=True)
class EntryStyle:
    """The look of all entries of a log."""

    width: int
    label: int
    """Columns for who printed it."""
    world_size: int
    search: Search
    wrapped: bool = True
    """A long line takes several rows; else it is cut."""
    pan: int = 0
    """Characters left of the screen where lines are cut."""

    @property
    def room(self) -> int:
        """Return the columns for the text."""
        return max(8, self.width - self.label - 4)


def entry_lines(entry: FoldedLine, style: EntryStyle, *, chosen: bool = False) -> list[Line]:
    """One entry: who printed it (stderr with a ! before it), and the text, in as many rows as it needs.

    chosen: the search went to it.
    """
    name = cut(who(entry.ranks, style.world_size), style.label)
    mark, error = (CURSOR if chosen else " "), "! " if entry.stream == "err" else "  "
    return [
        [(mark if place == 0 else " ", "strong"), (f"{name if place == 0 else '':>{style.label}} ", "muted"),
         (error, "warn"), *found_in_row]
        for place, found_in_row in enumerate(_highlighted(_rows(entry.text, style, whole=chosen), entry.text, style))
    ]  # fmt: skip


def _rows(text: str, style: EntryStyle, *, whole: bool) -> list[str]:
    room = style.room
    if not style.wrapped:
        return [cut(text[style.pan :], room)]
    indent = len(text) - len(text.lstrip())
    rows = wrap(text, room - indent) if cell_len(text) > room > indent + 8 else [text.lstrip()]
    if len(rows) > _MOST_ROWS and not whole:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
    return [cut(" " * indent + row, room) for row in rows]


def _highlighted(rows: Iterable[str], text: str, style: EntryStyle) -> Iterator[Line]:
    """The rows, with what the search found in the text in another colour.

    Wrapping changes nothing but spaces: the characters between them are still those of the text, in their order.
    """
    spans = style.search.spans(text)
    if not spans:
        yield from ([(row, "text")] for row in rows)
        return
    found = {place for first, end in spans for place in range(first, end)}
    solid = [place for place, ch in enumerate(text) if not ch.isspace() and (style.wrapped or place >= style.pan)]
    at = 0
    for row in rows:
        roles: list[str] = []
        for column, ch in enumerate(row):
            if not ch.isspace():
                roles.append(FOUND if at < len(solid) and solid[at] in found else "text")
                at += 1
            else:  # between two characters that were found, so was it
                both = 0 < at < len(solid) and {solid[at - 1], solid[at]} <= found
                roles.append(FOUND if both and row[:column].strip() else "text")
        yield joined(zip(row, roles, strict=True))
