"""Lines of styled text, and how they are cut, filled and wrapped.

A line is a list of pieces (text, role): what a screen shows before colours and terminals come into it. Roles are
names of `palette.py`, joined with "+" where two apply ("warn+select"). Everything that comes from outside (names,
hosts, errors, verdicts) goes through `plain`, so that no rank can send escape sequences to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size

from ddpmon.plain import few_marks

Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Piece]

CURSOR = "›"
"""Stands where the cursor is, in every list, form and dialog."""


def plain(text: str) -> str:
    """Text from outside with every control character and line break made visible or a space, one for one."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else " " if ch.isspace() else "·" for ch in text)


def size(line: Line) -> int:
    """Columns that a line takes."""
    return sum(cell_len(text) for text, _ in line)


def joined(pieces: Iterable[Piece]) -> Line:
    """A line in which neighbours of one role are one piece: a screen is mostly made cell by cell."""
    line: Line = []
    text, role = "", None
    for piece, piece_role in pieces:
        if piece_role == role:
            text += piece
            continue
        if role is not None:
            line.append((text, role))
        text, role = piece, piece_role
    if role is not None:
        line.append((text, role))
    return line


def fit(line: Line, width: int, role: str = "text") -> Line:
    """The line in exactly `width` columns: cut, or filled with spaces of `role`.

    Every line that is shown comes through here, and `plain` with it.
    """
    fitted: Line = []
    room = width
    for piece, name in line:
        text = plain(piece)
        columns = cell_len(text)
        if columns < len(text):
            text = few_marks(text)
        if columns > room:
            text = set_cell_size(text, room)  # a wide character at the edge becomes a space
            columns = room
        if columns > 0:
            fitted.append((text, name))
        room -= columns
        if room <= 0:
            break
    if room > 0:
        fitted.append((" " * room, role))
    return fitted


def cut(text: str, width: int) -> str:
    """Text in at most `width` columns, with … where something is missing."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    return set_cell_size(text, width - 1).rstrip() + "…"


def with_mark(line: Line, column: int, mark: Piece) -> Line:
    """Return the line with a mark in place of the character in a column."""
    marked: Line = []
    at = 0
    for text, role in line:
        place = column - at
        if 0 <= place < len(text):
            marked += [(text[:place], role), mark, (text[place + 1 :], role)]
        else:
            marked.append((text, role))
        at += len(text)
    return [piece for piece in marked if piece[0]]


def selected(line: Line, first: int, end: int) -> Line:
    """Return the line with some of its characters, from the first to before the end, as selected ones."""
    letters = [(letter, role) for text, role in line for letter in text]
    return joined(
        (letter, f"{role}+select" if first <= place < end else role) for place, (letter, role) in enumerate(letters)
    )


def under_cursor(line: Line, width: int) -> Line:
    """Return the line as the one under the cursor: in another colour, with `CURSOR` in its second or first column.

    The first column of most lists says what is wrong; a list that fills both columns has the colour alone.
    """
    fitted = fit(line, width)
    blanks = [column for column, text in enumerate("".join(text for text, _ in fitted)[:2]) if text == " "]
    marked = with_mark(fitted, blanks[-1], (CURSOR, "strong")) if blanks else fitted
    return [(text, f"{role}+select") for text, role in marked]


def padded(text: str, width: int, *, left: bool = False) -> str:
    """Text in exactly `width` columns, cut as by `cut`; to the right of them, or to the left."""
    text = cut(text, width)
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


def cut_sentence(text: str, width: int) -> str:
    """A sentence in at most `width` columns, ended after a clause if one ends late enough, else after a word."""
    if cell_len(text) <= width:
        return text
    if width < 12:
        return cut(text, width)
    head = set_cell_size(text, width)
    for mark in (". ", "; ", ", "):
        place = head.rfind(mark)
        if place >= width * 0.6:
            return head[:place] + "."
    words = set_cell_size(text, width - 1)
    place = words.rfind(" ")
    return (words[:place] if place >= width // 2 else words).rstrip(" ,;:") + "…"


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces of at most `width` columns, or of one character where that is wider; linear in its length."""
    pieces, used = [""], 0
    for character in word:
        columns = cell_len(character)
        if used + columns > width and pieces[-1]:
            pieces.append("")
            used = 0
        pieces[-1] += character
        used += columns
    return pieces


def wrap(text: str, width: int) -> list[str]:
    """Text in lines of at most `width` columns, broken at spaces where there are any."""
    width = max(1, width)
    wrapped: list[str] = []
    row = ""
    for word in text.split():
        joined = f"{row} {word}" if row else word
        if cell_len(joined) <= width:
            row = joined
            continue
        if row:
            wrapped.append(row)
        *full, row = _pieces(word, width)
        wrapped += full
    return [*wrapped, row] if row or not wrapped else wrapped


def title(text: str, width: int, legend: Line | None = None) -> Line:
    """The rule that opens a pane: ─loss, 15 min────────."""
    line: Line = [("─", "rule"), (cut(text, max(0, width - 1)), "title")]
    if legend and size(line) + size(legend) + 3 <= width:
        line += [("   ", "rule"), *legend]
    return [*line, ("─" * max(0, width - size(line)), "rule")]
