"""Lines of styled text, with functions that cut, fill and wrap them.

A line is a list of pieces (text, role): the content of a screen before colours and terminals are applied. Roles are
names of `palette.py`, joined with "+" if two apply ("warn+select"). All text from outside (names, hosts, errors,
verdicts) goes through `plain_text`, so that no rank can send escape sequences to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size

from ddpmon.plain import few_marks

Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Piece]

CURSOR = "›"
"""Sign that marks the cursor in every list, form and dialog."""


def plain_text(text: str) -> str:
    """Replace each control character and line break in a text by one visible character or a space."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else " " if ch.isspace() else "·" for ch in text)


def line_width(line: Line) -> int:
    """Return the width of a line in columns."""
    return sum(cell_len(text) for text, _ in line)


def line_text(line: Line) -> str:
    """Return a line as text for scripts, chats and mails."""
    return plain_text("".join(text for text, _ in line)).rstrip()


def join_pieces(pieces: Iterable[Piece]) -> Line:
    """Join neighbouring pieces of the same role, because most screens are built cell by cell."""
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


def fit_line(line: Line, width: int, role: str = "text") -> Line:
    """Cut a line to exactly `width` columns, or fill it with spaces of `role`.

    Every line that is shown goes through this function, and so through `plain_text`.
    """
    fitted: Line = []
    room = width
    for piece, name in line:
        text = plain_text(piece)
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


def cut_text(text: str, width: int) -> str:
    """Cut a text to at most `width` columns, with … in place of the missing part."""
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


def mark_selected(line: Line, first: int, end: int) -> Line:
    """Return the line with its characters from `first` to before `end` marked as selected."""
    letters = [(letter, role) for text, role in line for letter in text]
    return join_pieces(
        (letter, f"{role}+select" if first <= place < end else role) for place, (letter, role) in enumerate(letters)
    )


def under_cursor(line: Line, width: int) -> Line:
    """Return the line as shown under the cursor: in another colour, with `CURSOR` in its second or first column.

    `CURSOR` goes into the second column if that is free, because the first column of most lists marks problems. If both
    columns have text, the line gets only the colour.
    """
    fitted = fit_line(line, width)
    blanks = [column for column, text in enumerate("".join(text for text, _ in fitted)[:2]) if text == " "]
    marked = with_mark(fitted, blanks[-1], (CURSOR, "strong")) if blanks else fitted
    return [(text, f"{role}+select") for text, role in marked]


def pad_text(text: str, width: int, *, left: bool = False) -> str:
    """Cut or fill a text to exactly `width` columns, with the text on the right, or on the left if `left` is true."""
    text = cut_text(text, width)
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


def cut_sentence(text: str, width: int) -> str:
    """Cut a sentence to at most `width` columns: after a clause if that does not lose too much text, else
    after a word.
    """
    if cell_len(text) <= width:
        return text
    if width < 12:
        return cut_text(text, width)
    head = set_cell_size(text, width)
    for mark in (". ", "; ", ", "):
        place = head.rfind(mark)
        if place >= width * 0.6:
            return head[:place] + "."
    words = set_cell_size(text, width - 1)
    place = words.rfind(" ")
    return (words[:place] if place >= width // 2 else words).rstrip(" ,;:") + "…"


def _pieces(word: str, width: int) -> list[str]:
    """Split a word into pieces of at most `width` columns, in linear time. A character that is wider becomes a piece of
    its own.
    """
    pieces, used = [""], 0
    for character in word:
        columns = cell_len(character)
        if used + columns > width and pieces[-1]:
            pieces.append("")
            used = 0
        pieces[-1] += character
        used += columns
    return pieces


def wrap_text(text: str, width: int) -> list[str]:
    """Wrap a text to lines of at most `width` columns, at spaces where there are any."""
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


def paragraph(text: str, width: int, role: str = "text", first: Line | None = None) -> list[Line]:
    """Wrap a text to lines of at most `width` columns. The first line begins with `first`, the others with spaces of
    the same width.
    """
    begin: Line = [(" ", role)] if first is None else first
    rest: Line = [(" " * line_width(begin), role)]
    rows = wrap_text(plain_text(text), width - line_width(begin))
    return [[*(rest if place else begin), (row, role)] for place, row in enumerate(rows)]


def pane_title(text: str, width: int, legend: Line | None = None) -> Line:
    """Return the horizontal line with the title at the top of a pane: ─loss, 15 min────────."""
    line: Line = [("─", "rule"), (cut_text(text, max(0, width - 1)), "title")]
    if legend and line_width(line) + line_width(legend) + 3 <= width:
        line += [("   ", "rule"), *legend]
    return [*line, ("─" * max(0, width - line_width(line)), "rule")]
