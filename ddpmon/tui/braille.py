"""A canvas of braille dots: two columns and four rows of dots in each character cell.

A column of dots is one int (bit 0 is the top dot), so that a vertical stroke is a shift and a mask, and a line chart
of any number of points costs about a microsecond per column.
"""

from __future__ import annotations

from collections.abc import Sequence

BLANK = 0x2800
# Braille numbers its dots 1-2-3-7 down the left and 4-5-6-8 down the right column of a cell.
_LEFT = tuple(sum(bit for row, bit in enumerate((0x01, 0x02, 0x04, 0x40)) if nibble >> row & 1) for nibble in range(16))
_RIGHT = tuple(
    sum(bit for row, bit in enumerate((0x08, 0x10, 0x20, 0x80)) if nibble >> row & 1) for nibble in range(16)
)


class Canvas:
    """A canvas of `width` x `height` character cells. Coordinates count dots from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = max(0, width), max(0, height)
        self.dots_wide, self.dots_high = 2 * self.width, 4 * self.height
        self._columns = [0] * self.dots_wide

    def dot(self, x: int, y: int) -> None:
        """Set one dot; do nothing if it is outside the canvas."""
        self.draw_stroke(x, y, y)

    def draw_stroke(self, x: int, top: int, bottom: int) -> None:
        """Set the dots of column `x` from `top` to `bottom`, both included, in either order."""
        if top > bottom:
            top, bottom = bottom, top
        top, bottom = max(0, top), min(self.dots_high - 1, bottom)
        if 0 <= x < self.dots_wide and top <= bottom:
            self._columns[x] |= (1 << bottom + 1) - (1 << top)

    def draw_curve(self, ys: Sequence[float | None]) -> None:
        """Draw a curve given by the dot row of each dot column; None leaves a gap, and neighbours are joined."""
        before: int | None = None
        for x, y in enumerate(ys):
            if y is None:
                before = None
                continue
            row = round(y)
            if before is None or abs(row - before) <= 1:
                self.dot(x, row)
            else:
                # Draw half of the rise in each of the two columns, so that a steep step is an unbroken line.
                middle = (before + row) // 2
                self.draw_stroke(x - 1, before, middle)
                self.draw_stroke(x, middle, row)
            before = row

    def row_bits(self, row: int) -> list[int]:
        """Return the dots of each cell of a row as bits; U+2800 plus these bits is the cell's braille character."""
        shift = 4 * row
        cells = zip(self._columns[::2], self._columns[1::2], strict=True)
        return [_LEFT[left >> shift & 15] | _RIGHT[right >> shift & 15] for left, right in cells]
