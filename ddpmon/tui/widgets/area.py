"""A course through time as a filled area of dots, two moments to a column of the screen."""

from __future__ import annotations

from collections.abc import Callable

from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.tui.braille import BLANK, Canvas
from ddpmon.tui.lines import Line, joined

MOMENTS = 2
"""In a column of the screen."""


def share(cell: int) -> float:
    """Return where on its scale a cell lies, 0 to 1."""
    return (min(cell, MOST) - LEAST) / (MOST - LEAST)


def area(cells: bytes, width: int, height: int, role: Callable[[int], str]) -> list[Line]:
    """The newest moments, the newest on the right. A value is at least a thin line; a gap has none.

    role: of a column, by its lowest cell that has a value.
    """
    shown = cells[-MOMENTS * width :] if width > 0 else b""
    shown = bytes(MOMENTS * width - len(shown)) + shown
    canvas = Canvas(width, height)
    for x, cell in enumerate(shown):
        if cell != NOTHING:
            dots = max(1, round(share(cell) * canvas.dots_high))
            canvas.stroke(x, canvas.dots_high - dots, canvas.dots_high - 1)
    columns = [[cell for cell in pair if cell] for pair in zip(shown[::2], shown[1::2], strict=True)]
    roles = ["" if not pair else "bad" if NOT_FINITE in pair else role(min(pair)) for pair in columns]
    rows = (zip(canvas.row(row), roles, strict=True) for row in range(height))
    return [joined((chr(BLANK + dots), of) if dots else (" ", "text") for dots, of in row) for row in rows]
