"""A chart of one quantity of all ranks over time: the band between lowest and highest, with one or two curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import Series, SeriesView, Snapshot
from ddpmon.messages.quantities import MS, NUMBER
from ddpmon.tui import axis, curves
from ddpmon.tui.braille import BLANK, Canvas
from ddpmon.tui.chart_choice import ChartChoice, Offered, quantity_named
from ddpmon.tui.frame import Frame, finite_or_none
from ddpmon.tui.lines import Line, cut_text, join_pieces, pane_title
from ddpmon.tui.units import value_formatter
from ddpmon.tui.widgets.pane import Actions, Pane

AXIS_WIDTH = 7
"""Width of the axis on the left in columns: a space, five or six for the number, and a space."""
LOG_SCALE_NOTE = ", log scale"
_WITH_TIMES = 5
"""Height of a chart in lines from which the chart's last line shows times."""
IN_EVERY_SNAPSHOT = ("loss", "own")
"""Quantities that every snapshot contains, over the whole run."""


@dataclass(frozen=True)
class Curve:
    """A curve on a chart, with its values and its colour role. A later curve is drawn over earlier curves."""

    values: curves.Curve
    role: str


def plot(
    band: tuple[curves.Curve, curves.Curve],
    lines: list[Curve],
    bounds: tuple[float, float],
    width: int,
    height: int,
    cursor: int | None,
) -> list[Line]:
    """Draw the band and the curves in `height` lines of `width` cells.

    Args:
        band: The lowest and the highest values, one for each column of dots.
        lines: The curves, with one value for each column of dots.
        bounds: Values at the lower and the upper edge. Values beyond the edges are drawn at the edge.
        width: Columns of cells.
        height: Lines.
        cursor: The column of cells that is marked; None marks none.

    """
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
        canvas.draw_curve([row(value) for value in line.values])
        layers.append((canvas, line.role))
    spans = [_cells(row, *band, column, height) for column in range(width)]
    on_band = {role: f"{role}+band" for role in ("text", "title", *(line.role for line in lines))}
    drawn: list[Line] = []
    for y in range(height):
        dots, roles = [0] * width, ["text"] * width
        for canvas, of in layers:
            for x, cell in enumerate(canvas.row_bits(y)):
                if cell:
                    dots[x] |= cell
                    roles[x] = of
        pieces: Line = []
        for x, cell in enumerate(dots):
            mark, role = (chr(BLANK + cell), roles[x]) if cell else ("│", "title") if x == cursor else (" ", "text")
            pieces.append((mark, on_band[role] if spans[x][0] <= y <= spans[x][1] else role))
        drawn.append(join_pieces(pieces))
    return drawn


def _cells(
    row: Callable[[float | None], float | None],
    low: curves.Curve,
    high: curves.Curve,
    column: int,
    height: int,
) -> tuple[int, int]:
    """Return the rows of cells at the top and bottom of the band in a column; (height, -1) if the column
    has no value.
    """
    tops = [top for value in high[2 * column : 2 * column + 2] if (top := row(value)) is not None]
    bottoms = [bottom for value in low[2 * column : 2 * column + 2] if (bottom := row(value)) is not None]
    if not tops or not bottoms:
        return height, -1
    return int(min(tops)) // 4, int(max(bottoms)) // 4


@dataclass(frozen=True)
class Style:
    """The form in which a series is drawn."""

    label: Callable[[float | None], str]
    roles: tuple[str | None, str]
    """Colour roles of the curve of the worst values and of the median curve. If the first is None, no curve of the
    worst values is drawn."""
    worst: str = "high"
    """The worse end: "high" or "low"."""
    log: bool = False
    clip: bool = False
    """True if a few values far above all others may be cut off."""
    from_zero: bool = False
    """True if the lower edge is 0, so that twice the value is twice as high."""
    smoothing: float = 0.0
    """Weight of the moving average that is drawn over the median; 0 draws none."""


@dataclass(frozen=True)
class Bounds:
    """The values at the edges of a chart."""

    bottom: float
    top: float
    highest: float
    """The highest value, which is above `top` if a few values are cut off."""

    def note(self, style: Style) -> str:
        """Return the heading's note about values that are cut off; "" if there are none."""
        return f" · cut, up to {style.label(self.highest)}" if self.highest > self.top else ""


def bounds_of(series: Series | SeriesView, style: Style, span: tuple[float, float] | None = None) -> Bounds | None:
    """Return the values at the edges of a chart; None if there is no value. On a logarithmic chart they are logarithms.

    Args:
        series: The series.
        style: The form in which it is drawn.
        span: The first and the last moment on the chart; None for the whole series.

    """
    inside = [span is None or span[0] <= at <= span[1] for at in series.seconds]
    lows, medians, highs = (
        [v for v, is_inside in zip(_scaled(each, style), inside, strict=False) if is_inside]
        for each in (series.low, series.median, series.high)
    )
    bounds = curves.finite_limits(lows, medians, highs)
    if bounds is None:
        return None
    bottom, highest = bounds
    if style.log:
        return Bounds(bottom, highest, highest)
    if style.from_zero:
        bottom = min(0.0, bottom)
    ceiling = curves.chart_ceiling(highs) if style.clip else None
    return Bounds(bottom, ceiling if ceiling is not None and bottom < ceiling < highest else highest, highest)


def _scaled(values: curves.Values, style: Style) -> curves.Curve:
    finite = [finite_or_none(value) for value in values]
    return [None if value is None or value <= 0 else math.log10(value) for value in finite] if style.log else finite


def draw_curves(
    series: Series | SeriesView,
    style: Style,
    width: int,
    height: int,
    bounds: Bounds | None,
    span: tuple[float, float] | None = None,
    cursor: int | None = None,
) -> list[Line] | None:
    """Draw axis and curves in lines of `width` columns. Return None if there is no value, or not enough room.

    Args:
        series: The series.
        style: The form in which it is drawn.
        width: Columns, including the axis.
        height: Lines.
        bounds: The edges that `bounds_of` returned.
        span: The first and the last moment on the chart; None for the whole series.
        cursor: The marked column of cells, where 0 is the first one right of the axis; None marks none.

    """
    columns = width - AXIS_WIDTH
    if columns < 2 or height < 1 or bounds is None:
        return None
    smooth = curves.smoothed([finite_or_none(v) for v in series.median], style.smoothing) if style.smoothing else []
    low, median, high, smooth = (_scaled(values, style) for values in (series.low, series.median, series.high, smooth))
    seconds = series.seconds
    bottom, top = bounds.bottom, bounds.top
    dots = 2 * columns
    upper = curves.column_values(seconds, high, dots, max, span)
    lower = curves.column_values(seconds, low, dots, min, span)
    middle = curves.column_values(seconds, median, dots, curves.safe_mean, span)
    lines = [Curve(middle, "muted" if smooth else style.roles[1])]
    if style.roles[0] is not None:
        lines.insert(0, Curve(upper if style.worst == "high" else lower, style.roles[0]))
    if smooth:
        lines.append(Curve(curves.column_values(seconds, smooth, dots, curves.safe_mean, span), "strong"))
    cells = plot((lower, upper), lines, (bottom, top), columns, height, cursor)
    marks = {height - 1: bottom, height // 2: bottom / 2 + top / 2 if height >= 5 else None, 0: top}
    labelled: list[Line] = []
    for y, line in enumerate(cells):
        value = marks.get(y)
        text = "" if value is None else _label(value, style)
        if y == 0 and bounds.highest > top:
            text += "+"
        if y and bottom == top:
            text = ""
        labelled.append([(f" {text:<{AXIS_WIDTH - 1}}"[:AXIS_WIDTH], "muted"), *line])
    return labelled


def _label(value: float, style: Style) -> str:
    if style.log:
        return style.label(math.pow(10.0, min(300.0, value)))
    return style.label(value) if value else "0"


def empty_note(series: Series | SeriesView, *, log: bool, otherwise: str) -> str:
    """Return the text that a chart without curves shows: the reason why there are none.

    Args:
        series: The values.
        log: True on a logarithmic scale.
        otherwise: The text for a series without any value.

    """
    if log and any(finite_or_none(value) is not None for value in series.median):
        return "a logarithmic scale needs values above 0; press l for a linear scale"
    return "no finite value" if any(value is not None for value in series.median) else otherwise


def draw_chart(
    series: Series | SeriesView, name: str, style: Style, width: int, height: int, *, empty: str = ""
) -> list[Line]:
    """Draw a chart of a whole run with title, axis and curves."""
    span = series.seconds[-1] - series.seconds[0] if series.seconds else None
    heading = name + (LOG_SCALE_NOTE if style.log else "")
    if span and len(heading) + len(numbers.span(span)) + 3 < width:
        heading += f", {numbers.span(span)}"
    newest = next((value for value in reversed(series.median) if value is not None), None)
    if newest is not None and not math.isfinite(newest):
        heading += f" · now {style.label(newest)}"
    bounds = bounds_of(series, style)
    if bounds is not None and len(heading + bounds.note(style)) + 2 <= width:
        heading += bounds.note(style)
    lines = [pane_title(heading, width)]
    times = int(height >= _WITH_TIMES and width >= AXIS_WIDTH + axis.MIN_LABEL_DISTANCE)
    cells = draw_curves(series, style, width, height - 1 - times, bounds)
    if cells is not None:
        below: Line = [(" " * AXIS_WIDTH, "text")]
        if times:
            below.append((axis.span_labels(series.seconds[0], series.seconds[-1], width - AXIS_WIDTH), "muted"))
        return [*lines, *cells, *[below] * times]
    note = empty_note(series, log=style.log, otherwise=empty) if width - AXIS_WIDTH >= 2 else ""
    return [*lines, *([[("  " + cut_text(note, width - 2), "muted")]] if note and height > 1 else [])]


def requested_series(frame: Frame, choice: ChartChoice) -> SeriesView | Series | None:
    """Return the chosen quantity's series so far; None before the series has arrived."""
    if frame.series is not None and frame.series.name == choice.name:
        return frame.series
    return in_every_snapshot(frame, choice)


def in_every_snapshot(frame: Frame, choice: ChartChoice) -> Series | None:
    """Return the chosen quantity's series over the whole run; None if snapshots do not always contain it."""
    if frame.snapshot is None or choice.name not in IN_EVERY_SNAPSHOT:
        return None
    return frame.snapshot.loss_series if choice.name == "loss" else frame.snapshot.own_series


def held_s(frame: Frame) -> float | None:
    """Return the moment that a paused screen shows, in seconds since the run's start; None on a screen that is not
    paused.
    """
    if frame.behind_s is None or frame.snapshot is None:
        return None
    return max(0.0, frame.snapshot.at - frame.snapshot.run.started_at)


def style_of(choice: ChartChoice, frame: Frame) -> Style:
    """Return the form in which the chosen quantity is drawn."""
    shown = quantity_named(choice.name)
    alarmed = choice.name == "own" and frame.snapshot is not None and frame.snapshot.severity != "info"
    roles = ("warn" if alarmed else "info" if shown.worse else None), "text" if shown.worse else "info"
    return Style(
        value_formatter(shown.unit),
        roles,
        shown.worse or "high",
        choice.log,
        shown.unit in {MS, NUMBER},
        shown.unit == MS,
        choice.smoothing,
    )


class ChoosingChart(Pane):
    """A chart whose quantity and form the user chooses by keys."""

    SHOWS_POINTED = True

    def __init__(self, choice: ChartChoice, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choice = choice

    @property
    def actions(self) -> Actions:
        return {"next_metric": self._next_metric, "log_scale": self._log_scale, "smooth": self._smooth}

    @property
    def offered(self) -> Offered:
        return self.choice.offered(self.frame.snapshot, self._chart)

    def _next_metric(self) -> None:
        self.choice.next_name(self.frame.snapshot)
        self.redraw()

    def _chart(self, name: str) -> None:
        self.choice.name = name
        self.redraw()

    def _log_scale(self) -> None:
        self.choice.log = not self.choice.log
        self.redraw()

    def _smooth(self) -> None:
        self.choice.next_smoothing()
        self.redraw()


def empty_reason(snapshot: Snapshot | None, name: str) -> str:
    """Return the text to show for a quantity without values."""
    return f"no {name} recorded yet" if name == "loss" and snapshot is not None and snapshot.step else "no steps yet"
