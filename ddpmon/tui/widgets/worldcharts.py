"""The charts of World: the chosen quantity and own time, over the whole run, with the values under the mouse."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.messages import SERIES_MOST, STEP_SERIES, Series, SeriesRequest, SeriesView, ViewRequest
from ddpmon.tui import axis, curves
from ddpmon.tui.chart_choice import SMOOTHINGS, ChartChoice, quantity_named
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, pane_title
from ddpmon.tui.preferences import Values
from ddpmon.tui.widgets.chart import (
    AXIS_WIDTH,
    IN_EVERY_SNAPSHOT,
    LOG_SCALE_NOTE,
    ChoosingChart,
    Style,
    draw_chart,
    empty_reason,
    held_s,
    in_every_snapshot,
    requested_series,
    style_of,
)
from ddpmon.tui.widgets.pane import Pane


def values_at(series: Series | SeriesView, style: Style, width: int, x: int) -> str:
    """Return the time, median and range at column `x` of a chart; "" if there are no values there, as on
    the left axis.
    """
    if x < AXIS_WIDTH or not series.seconds:
        return ""
    span = series.seconds[0], series.seconds[-1]
    at = curves.moment_of(x - AXIS_WIDTH, span, width - AXIS_WIDTH)
    place = curves.nearest_point(series.seconds, span, at) or 0
    low, median, high = (style.label(each[place]) for each in (series.low, series.median, series.high))
    values = median if low == high else f"{median} ({low}–{high})"
    return f"at {axis.moment_label(series.seconds[place], span[1] - span[0])}: {values}"


class KeptChart:
    """Caches the last drawn chart, because drawing takes milliseconds and most frames have the same series."""

    def __init__(self) -> None:
        self._series: Series | SeriesView | None = None
        self._asked: tuple[object, ...] = ()
        self._lines: list[Line] = []

    def chart(
        self, series: Series | SeriesView, name: str, style: Style, room: tuple[int, int], empty: str,
        pointed: tuple[int, int] | None,
    ) -> list[Line]:  # fmt: skip
        """Return the lines of a chart, cached until the arguments change.

        If the mouse is at a column of the chart (`pointed`), the values there replace the title.
        """
        width, height = room
        asked = (name, style, width, height, empty)
        if series is not self._series or asked != self._asked:
            self._series, self._asked = series, asked
            self._lines = draw_chart(series, name, style, width, height, empty=empty)
        values = "" if pointed is None else values_at(series, style, width, pointed[0])
        return [pane_title(f"{name.partition(':')[0]} {values}", width), *self._lines[1:]] if values else self._lines


class ChosenChart(ChoosingChart):
    """The chosen quantity over the whole run: median, worse end, and the band between lowest and highest."""

    def __init__(self, choice: ChartChoice, *, id: str) -> None:
        super().__init__(choice, id=id)
        self._kept = KeptChart()

    @property
    def preferences(self) -> Values:
        choice = self.choice
        return {"chart": choice.name, "log": choice.log, "smoothing": choice.smoothing}

    def restore(self, saved: Values) -> None:
        if (name := saved.get("chart")) in STEP_SERIES:  # every run has these
            self.choice.name = str(name)
        self.choice.log = saved.get("log") is True
        if (smoothing := saved.get("smoothing")) in SMOOTHINGS:
            self.choice.smoothing = float(str(smoothing))

    @property
    def view_request(self) -> ViewRequest:
        if self.choice.name in IN_EVERY_SNAPSHOT:
            return ViewRequest()
        width = self.size.width or self.app.size.width // 2
        points = max(1, min(SERIES_MOST, 2 * (width - AXIS_WIDTH)))
        return ViewRequest(series=SeriesRequest((self.choice.name,), columns=points, end_s=held_s(self.frame)))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        choice = self.choice
        style = style_of(choice, frame)
        if choice.name == "loss":
            style = replace(style, roles=(None, "info"))
        series = in_every_snapshot(frame, choice) or requested_series(frame, choice)
        empty = "coming…" if series is None else empty_reason(frame.snapshot, choice.name)
        name = quantity_named(choice.name).chart
        curves_shown = f": {style.worst}est, median"
        if style.roles[0] is not None and len(name + curves_shown) + len(LOG_SCALE_NOTE) * style.log + 2 <= width:
            name += curves_shown
        return self._kept.chart(series or Series(), name, style, (width, height), empty, self.pointed)


class OwnChart(Pane):
    """Own time of the slowest rank and the median. The distance between them is the time lost by waiting."""

    SHOWS_POINTED = True

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._kept = KeptChart()

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        series = Series() if frame.snapshot is None else frame.snapshot.own_series
        style = style_of(ChartChoice("own"), frame)
        name = "own ms per step: slowest, median"
        return self._kept.chart(series, name, style, (width, height), empty_reason(frame.snapshot, "own"), self.pointed)
