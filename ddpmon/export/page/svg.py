"""Draws charts as SVG, which browsers, mail programs and artifact viewers show without JavaScript."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from ddpmon.plain import plain

CHART_WIDTH = 1150
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 8, 38
"""Margins around the plot, in px."""
MOST_TICKS = 8
TICK_INTERVALS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Possible distances between ticks on a time axis, in seconds. Longer distances are multiples of a day."""
_LABEL = "#565f6b"
_GRID = "#e4e8ec"


def element(name: str, content: str = "", /, **attributes: object) -> Markup:
    """Return an HTML or SVG element. Text is escaped unless it is Markup; `_` in attribute names becomes "-"."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(f"{value:.2f}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{escape(content)}</{name}>")  # noqa: S704  every part is escaped


def text(words: str, x: float, y: float, anchor: str = "start") -> Markup:
    """Return an SVG text element at (x, y), in px."""
    return element("text", plain(words), x=x, y=y, text_anchor=anchor, fill=_LABEL)


def hint(words: str) -> Markup:
    """Return a tooltip, which the caller puts into an SVG element."""
    return element("title", plain(words))


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """Return a legend in one line. entries: (colour, meaning) pairs."""
    return element(
        "p",
        Markup(" ").join(
            element("span", element("i", "", style=f"background:{colour}") + escape(plain(words)))
            for colour, words in entries
        ),
        class_="legend",
    )


def ticks(low: float, high: float, distances: Sequence[float] = ()) -> list[float]:
    """Return round values for the ticks of an axis, from the lowest to the highest value.

    Args:
        low: The lowest value.
        high: The highest value.
        distances: Distances between ticks to choose from. If all are too small, round multiples of the last distance
            are tried.

    """
    span = high - low
    fitting = next((each for each in distances if span <= each * MOST_TICKS), None)
    if fitting is None:
        unit = distances[-1] if distances else 1.0
        power = unit * 10.0 ** math.floor(math.log10(span / MOST_TICKS / unit))
        fitting = next(power * factor for factor in (1, 2, 5, 10) if span <= power * factor * MOST_TICKS)
    first = math.ceil(low / fitting - 1e-9)
    return [fitting * place for place in range(first, math.floor(high / fitting + 1e-9) + 1)]


@dataclass
class Plot:
    """A plot with two linear axes. An empty range of values is widened to 1."""

    height: int
    x: tuple[float, float]
    y: tuple[float, float]
    parts: list[Markup] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.x, self.y = _range(self.x), _range(self.y)

    def at_x(self, value: float) -> float:
        """Return the horizontal position of a value, in px."""
        low, high = self.x
        return LEFT + (value - low) / (high - low) * (CHART_WIDTH - LEFT - RIGHT)

    def at_y(self, value: float) -> float:
        """Return the vertical position of a value, in px from the top."""
        low, high = self.y
        return self.height - BOTTOM - (value - low) / (high - low) * (self.height - BOTTOM - TOP)

    def add(self, name: str, content: str = "", /, **attributes: object) -> None:
        """Append an SVG element to the drawing; the arguments are those of `element`."""
        self.parts.append(element(name, content, **attributes))

    def line(self, points: Sequence[tuple[float, float]], **attributes: object) -> None:
        """Draw a line through points, given in units of the axes."""
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        self.add("polyline", points=path, **attributes)

    def area(self, points: Sequence[tuple[float, float]], **attributes: object) -> None:
        """Fill the polygon of points, given in units of the axes."""
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        self.add("polygon", points=path, **attributes)

    def x_axis(self, title: str, written: Callable[[float], str], distances: Sequence[float] = ()) -> None:
        """Draw ticks below the plot, and the title of the axis.

        Args:
            title: Name and unit of the quantity.
            written: Formats a tick's value.
            distances: Distances between ticks, as for `ticks`.

        """
        for value in ticks(*self.x, distances):
            x = self.at_x(value)
            self.add("line", x1=x, x2=x, y1=float(TOP), y2=float(self.height - BOTTOM), stroke=_GRID)
            self.parts.append(text(written(value), x, self.height - BOTTOM + 14, "middle"))
        self.parts.append(text(title, (LEFT + CHART_WIDTH - RIGHT) / 2, self.height - 6, "middle"))

    def y_axis(self, written: Callable[[float], str]) -> None:
        """Draw ticks with their values left of the plot. written: formats a tick's value."""
        for value in ticks(*self.y):
            y = self.at_y(value)
            self.add("line", x1=float(LEFT), x2=float(CHART_WIDTH - RIGHT), y1=y, y2=y, stroke=_GRID)
            self.parts.append(text(written(value), LEFT - 6, y + 4, "end"))

    def drawn(self) -> Markup:
        """Return the drawing as an SVG element."""
        return element("svg", Markup("").join(self.parts), viewBox=f"0 0 {CHART_WIDTH} {self.height}", role="img")


def _range(values: tuple[float, float]) -> tuple[float, float]:
    low, high = values
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def picture(cells: bytes, columns: int, palette: Sequence[tuple[int, int, int]]) -> str:
    """Return a PNG as a data URL. cells: one byte per pixel, row by row, which is an index into the palette."""
    rows = b"".join(b"\0" + cells[first : first + columns] for first in range(0, len(cells), columns))
    header = struct.pack(">IIBBBBB", columns, len(cells) // columns, 8, 3, 0, 0, 0)
    colours = b"".join(map(bytes, palette))
    chunks = [(b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
