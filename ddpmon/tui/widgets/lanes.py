"""Lanes and strips, which show values over time: a lane as a labelled area of dots, a strip as block characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from ddpmon import numbers
from ddpmon.messages import SAMPLE_SECONDS
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.tui import axis
from ddpmon.tui.braille import BLANK, Canvas
from ddpmon.tui.lines import Line, fit_line, join_pieces
from ddpmon.tui.widgets.pane import Actions, BlockPane

MOMENTS = 2
"""Number of values in a column of the screen."""
LEVELS = "▁▂▃▄▅▆▇█"
"""Blocks of a strip, from the lowest value to the highest."""
_AIR_FROM = 4
"""Height per lane in lines from which on the last line of each lane's height is left empty."""
_GAP = 1
"""Number of columns between lanes that stand side by side."""


def share(cell: int) -> float:
    """Return the position of a cell's value on the scale, from 0 to 1."""
    return (min(cell, MOST) - LEAST) / (MOST - LEAST)


def level_glyph(cell: int) -> str:
    """Return the block that represents a cell in a strip."""
    if cell == NOTHING:
        return " "
    return "✖" if cell == NOT_FINITE else LEVELS[min(7, (cell - LEAST) * 8 // (MOST - LEAST + 1))]


@lru_cache(maxsize=2048)
def area(cells: bytes, width: int, height: int, role: str, warn_below: float = 0.0) -> list[Line]:
    """Draw as many of the newest values as fit, the newest on the right. A value has at least one dot; a gap has no
    dots.

    The lines are cached, because samples arrive every second and frames twice as often.

    Args:
        cells: The values.
        width: Columns of the screen, of two values each.
        height: Lines.
        role: Colour of the area.
        warn_below: Share of the scale below which a column is drawn as a warning.

    """
    shown = cells[-MOMENTS * width :] if width > 0 else b""
    shown = bytes(MOMENTS * width - len(shown)) + shown
    canvas = Canvas(width, height)
    for x, cell in enumerate(shown):
        if cell != NOTHING:
            dots = max(1, round(share(cell) * canvas.dots_high))
            canvas.draw_stroke(x, canvas.dots_high - dots, canvas.dots_high - 1)
    roles = []
    for pair in zip(shown[::2], shown[1::2], strict=True):
        values = [cell for cell in pair if cell != NOTHING]
        low = bool(values) and share(min(values)) < warn_below
        roles.append("bad" if NOT_FINITE in pair else "warn" if low else role)
    rows = (zip(canvas.row_bits(row), roles, strict=True) for row in range(height))
    return [join_pieces((chr(BLANK + dots), of) if dots else (" ", "text") for dots, of in row) for row in rows]


@dataclass(frozen=True)
class Lane:
    """One lane: its label on the left, its values, and the text on its right."""

    label: Line
    cells: bytes | None
    """The values; None if nothing is known."""
    role: str = "info"
    warn_below: float = 0.0
    """Share of the scale below which a column is drawn as a warning."""
    value: str = ""


@dataclass(frozen=True)
class LaneGrid:
    """The layout of lanes in columns and rows. All lanes have the same size."""

    width: int
    """Width of each column of lanes, in columns of the screen."""
    label: int
    """Width of the labels, in columns of the screen."""
    tall: int = 1
    """Height of a lane in lines."""
    air: int = 0
    """Number of empty lines between two lanes."""
    value: int = 0
    """Width of the values on the right, in columns of the screen."""

    @property
    def room(self) -> int:
        """Return the width of a lane, in columns of the screen."""
        return max(1, self.width - self.label - self.value - _GAP)

    @property
    def moments(self) -> int:
        """Return the number of values in a lane."""
        return MOMENTS * self.room

    def lines(self, columns: Sequence[Sequence[Lane | None]]) -> list[Line]:
        """Draw columns of lanes side by side. None instead of a lane leaves its place empty."""
        lines: list[Line] = []
        for row in zip_longest(*columns):
            drawn = [self._lane(lane) for lane in row]
            lines += [[piece for lane in drawn for piece in fit_line(lane[y], self.width)] for y in range(self.tall)]
            lines += [[]] * self.air
        return lines

    def _lane(self, lane: Lane | None) -> list[Line]:
        """Return the lines of one lane, with its label and value on the lowest line."""
        if lane is None:
            return [[]] * self.tall
        if lane.cells is None:
            drawn: list[Line] = [*[[]] * (self.tall - 1), [(numbers.NONE, "muted")]]
        else:
            drawn = area(lane.cells, self.room, self.tall, lane.role, lane.warn_below)
        lines: list[Line] = [[(" " * self.label, "text"), *line] for line in drawn[:-1]]
        lowest: Line = [*fit_line(lane.label, self.label), *fit_line(drawn[-1], self.room)]
        return [*lines, [*lowest, (f"{lane.value:>{self.value}}", "text")]]

    def ages(self, seconds: int, columns: int, *, ended: bool = False) -> Line:
        """Return the time axis below `columns` columns of lanes. Values of a lane are `seconds` apart.

        If the run has ended, the axis ends at the run's end instead of now.
        """
        labels = axis.age_labels(float(self.moments * seconds), self.room, "end" if ended else "now")
        below: Line = [(" " * self.label + labels, "muted")]
        return [piece for _ in range(columns) for piece in fit_line(below, self.width)]


def split_height(lines: int, rows: int, tallest: int) -> tuple[int, int]:
    """Divide lines among rows of lanes; return (lines of a lane, empty lines below it)."""
    each = max(1, min(tallest + 1, lines // max(1, rows)))
    air = int(each >= _AIR_FROM)
    return each - air, air


class SampledLanes(BlockPane):
    """Lanes of values that are measured every second; a key changes the number of seconds per column."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.seconds = SAMPLE_SECONDS[0]
        """Seconds per value of a lane."""

    @property
    def actions(self) -> Actions:
        return {"window": self.next_window}

    def next_window(self) -> None:
        """Show more seconds per column. After the maximum comes the minimum again."""
        self.seconds = SAMPLE_SECONDS[(SAMPLE_SECONDS.index(self.seconds) + 1) % len(SAMPLE_SECONDS)]

    def span_text(self, grid: LaneGrid, columns: int) -> str:
        """Return the length of the shown time, such as "3 min". columns: number of known values."""
        return numbers.span(float(min(grid.moments, columns) * self.seconds))
