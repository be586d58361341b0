"""A chart of one quantity of all ranks over time: the band between them and one or two curves on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.messages import Series, Snapshot
from ddpmon.tui import curves, numbers
from ddpmon.tui.braille import BLANK, Canvas
from ddpmon.tui.frame import Frame, finite
from ddpmon.tui.lines import Line, title
from ddpmon.tui.widgets.pane import Pane

LABEL = 7
"""Columns of the axis on the left: a space, five or six for the number, a space."""


@dataclass(frozen=True)
class Curve:
    """A curve on a chart: its values, its role; later ones are drawn over earlier ones."""

    values: curves.Curve
    role: str


def plot(
    band: tuple[curves.Curve, curves.Curve], lines: list[Curve], bounds: tuple[float, float], width: int, height: int
) -> list[Line]:
    """`height` lines of `width` cells. Values are given per column of dots; those out of bounds stay at the edge."""
    low, high = bounds
    last, whole = 4 * height - 1, high - low

    def row(value: float | None) -> float | None:
        if value is None:
            return None
        share = (high - min(high, max(low, value))) / whole if 0 < whole < math.inf else 0.5
        return share * last

    layers = []
    for line in lines:
        canvas = Canvas(width, height)
        canvas.line([row(value) for value in line.values])
        layers.append((canvas, line.role))
    spans = [_cells(row, *band, column, height) for column in range(width)]
    drawn: list[Line] = []
    for y in range(height):
        pieces: Line = []
        for x in range(width):
            mark, role = " ", "text"
            dots = 0
            for canvas, of in layers:
                cell = canvas.bits(x, y)
                dots |= cell
                if cell:
                    role = of
            if dots:
                mark = chr(BLANK + dots)
            if spans[x][0] <= y <= spans[x][1]:
                role += "+band"
            if pieces and pieces[-1][1] == role:
                pieces[-1] = (pieces[-1][0] + mark, role)
            else:
                pieces.append((mark, role))
        drawn.append(pieces)
    return drawn


def _cells(
    row: Callable[[float | None], float | None],
    low: curves.Curve,
    high: curves.Curve,
    column: int,
    height: int,
) -> tuple[int, int]:
    """First and last cell of the band in a column of cells; an empty range where there is none."""
    tops = [top for value in high[2 * column : 2 * column + 2] if (top := row(value)) is not None]
    bottoms = [bottom for value in low[2 * column : 2 * column + 2] if (bottom := row(value)) is not None]
    if not tops or not bottoms:
        return height, -1
    return int(min(tops)) // 4, int(max(bottoms)) // 4


def _logarithm(values: curves.Values) -> curves.Curve:
    return [math.log10(value) if (value := finite(each)) is not None and value > 0 else None for each in values]


def chart(
    series: Series, name: str, roles: tuple[str | None, str], width: int, height: int, *,
    label: Callable[[float | None], str], log: bool = False, clip: bool = False, empty: str = "",
) -> list[Line]:  # fmt: skip
    """Title, axis and curves. `roles` of the highest rank's curve (None: only the band shows it) and of the median."""
    low, median, high = ([finite(v) for v in values] for values in (series.low, series.median, series.high))
    if log:
        low, median, high = _logarithm(low), _logarithm(median), _logarithm(high)
    span = series.seconds[-1] - series.seconds[0] if series.seconds else None
    heading = name + (", log scale" if log else "")
    if span and len(heading) + len(numbers.span(span)) + 3 < width:
        heading += f", {numbers.span(span)}"
    newest = next((value for value in reversed(series.median) if value is not None), None)
    if newest is not None and not math.isfinite(newest):
        heading += f" · now {label(newest)}"
    lines = [title(heading, width)]
    columns, rows = width - LABEL, height - 1
    bounds = curves.limits(low, median, high)
    if bounds is None or columns < 2 or rows < 1:
        note = empty if bounds is None else ""
        return [*lines, *([[("  " + note, "muted")]] if note and rows > 0 else [])]
    bottom, top = bounds
    clipped = False
    if clip and (highest := curves.ceiling(high)) is not None and bottom < highest < top:
        top, clipped = highest, True
    dots = 2 * columns
    drawn = [Curve(curves.curve(series.seconds, median, dots, curves.mean), roles[1])]
    upper = curves.curve(series.seconds, high, dots, max)
    if roles[0] is not None:
        drawn.insert(0, Curve(upper, roles[0]))
    lower = curves.curve(series.seconds, low, dots, min)
    cells = plot((lower, upper), drawn, (bottom, top), columns, rows)
    marks = {rows - 1: bottom, rows // 2: bottom / 2 + top / 2 if rows >= 5 else None, 0: top}
    for y, line in enumerate(cells):
        value = marks.get(y)
        text = "" if value is None else label(_power(value) if log else value)
        if y == 0 and clipped:
            text += "+"
        if y and bottom == top:
            text = ""
        lines.append([(f" {text:<{LABEL - 1}}"[:LABEL], "muted"), *line])
    return lines


def _power(exponent: float) -> float:
    return math.pow(10.0, min(300.0, exponent))


class LossChart(Pane):
    """The loss: median over ranks on the band between the lowest and the highest."""

    log_scale = False

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        series = Series() if frame.snapshot is None else frame.snapshot.loss_series
        return chart(
            series, "loss", (None, "info"), width, height, label=numbers.loss, log=self.log_scale,
            empty=_nothing(frame.snapshot, "no loss seen yet"),
        )  # fmt: skip


class OwnChart(Pane):
    """Own time of the slowest rank against the median: their distance is what waiting costs."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        series = Series() if frame.snapshot is None else frame.snapshot.own_series
        alarmed = frame.snapshot is not None and frame.snapshot.severity != "info"
        return chart(
            series, "own ms per step: slowest, median", ("warn" if alarmed else "info", "text"), width, height,
            label=numbers.ms, clip=True, empty=_nothing(frame.snapshot, "no steps yet"),
        )  # fmt: skip


def _nothing(snapshot: Snapshot | None, otherwise: str) -> str:
    return otherwise if snapshot is not None and snapshot.step else "no steps yet"
