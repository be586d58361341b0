"""A chart that fills the screen, with a cursor, the values under it, zoom, time windows and smoothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from textual import events

from ddpmon import numbers
from ddpmon.messages import SERIES_MOST, Series, SeriesRequest, SeriesView, ViewRequest
from ddpmon.tui import axis, curves
from ddpmon.tui.chart_choice import ChartChoice, measured_each, quantity_named
from ddpmon.tui.frame import Frame, finite_or_none
from ddpmon.tui.lines import Line, cut_text, line_width, mark_selected, pane_title
from ddpmon.tui.units import value_formatter
from ddpmon.tui.widgets.chart import (
    AXIS_WIDTH,
    ChoosingChart,
    Style,
    bounds_of,
    draw_curves,
    empty_note,
    empty_reason,
    held_s,
    requested_series,
    style_of,
)
from ddpmon.tui.widgets.pane import Actions

WINDOWS_S = (3600.0, 600.0, 60.0)
LEAST_SPAN_S = 1.0
LEAST_DRAG = 2
"""Length in columns from which dragging the mouse zooms. A shorter drag counts as a click."""
_BELOW = 4
"""Number of lines below the curves: the axis, its times, and two lines with values."""
ChartSeries: TypeAlias = Series | SeriesView


class BigChart(ChoosingChart):
    """The chosen quantity over a span of time. Times are seconds since the run started."""

    def __init__(self, choice: ChartChoice) -> None:
        super().__init__(choice)
        self._span_s: float | None = None
        """Length of the shown span in seconds; None shows the whole run."""
        self._end_s: float | None = None
        """End of the shown span; None if the span's end follows the run."""
        self._at_s: float | None = None
        """Time under the cursor; None for the newest time."""
        self._drag: tuple[int, int] | None = None
        """Column where the mouse button was pressed, and column of the mouse now; None if no drag is under way."""
        self._dragged = False
        """True if the next click event comes from the end of a drag."""

    @property
    def actions(self) -> Actions:
        return {**super().actions, "zoom": self.zoom, "window": self.next_window, "zoom_to_drag": self._zoom_to_drag}

    @property
    def view_request(self) -> ViewRequest:
        points = max(1, min(SERIES_MOST, 2 * self._columns))
        end_s = held_s(self.frame) if self._end_s is None else max(0.0, self._end_s)
        names = (self.choice.name,)
        return ViewRequest(series=SeriesRequest(names, columns=points, span_s=self._span_s, end_s=end_s))

    @property
    def _columns(self) -> int:
        return max(1, self.app.size.width - AXIS_WIDTH)  # needed before the first layout

    def _extent(self, series: ChartSeries) -> tuple[float, float]:
        """Return the times of the quantity's first and last value."""
        if isinstance(series, SeriesView):
            first, last = series.first_s, series.last_s
        else:
            first, last = (series.seconds[0], series.seconds[-1]) if series.seconds else (0.0, 0.0)
        held = held_s(self.frame)
        return first, last if held is None else max(first, min(last, held))

    def _shown(self, series: ChartSeries) -> tuple[float, float]:
        """Return the first and the last moment on the chart."""
        first, last = self._extent(series)
        end = last if self._end_s is None else min(last, self._end_s)
        return (first if self._span_s is None else max(first, end - self._span_s)), end

    # --- drawing ---

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        series, choice = requested_series(frame, self.choice), self.choice
        if series is None:
            return [pane_title(quantity_named(choice.name).chart, width), [(" coming…", "muted")]]
        span = self._shown(series)
        place = self._point(series, span)
        if self.pointed is not None and self.pointed[0] >= AXIS_WIDTH:
            place = curves.nearest_point(series.seconds, span, self._moment(self.pointed[0], span))
        dots = 2 * (width - AXIS_WIDTH)
        cursor = None if place is None else curves.column_of_moment(series.seconds[place], span, dots) // 2
        heading = self._heading(series, span)
        style = style_of(choice, frame)
        if isinstance(series, SeriesView) and all(rank is None for rank in series.worst):  # one rank logs it
            style = replace(style, roles=(None, "info"))
        bounds = bounds_of(series, style, span)
        heading += "" if bounds is None else bounds.note(style)
        lines = [pane_title(heading, width, self._legend(style, width - line_width([(heading, "")]) - 4))]
        cells = draw_curves(series, style, width, height - 1 - _BELOW, bounds, span, cursor)
        if cells is None:
            note = empty_note(series, log=choice.log, otherwise=empty_reason(frame.snapshot, choice.name))
            return [*lines, [("  " + cut_text(note, width - 2), "muted")]]
        if self._drag is not None:
            cells = [mark_selected(line, min(self._drag), max(self._drag) + 1) for line in cells]
        return [*lines, *cells, *self._axis(series, span, width, cursor), *self._values(series, span, place)]

    def _heading(self, series: ChartSeries, span: tuple[float, float]) -> str:
        first, last = self._extent(series)
        text = quantity_named(self.choice.name).chart + (", log scale" if self.choice.log else "")
        if self.choice.log and any(value is not None and value <= 0 for value in series.low):
            text += " (without values of 0 and less)"
        if span[0] <= first and span[1] >= last:
            return f"{text}, all {numbers.span(last - first)}"
        which_part = "last " if span[1] >= last else ""
        return f"{text}, {which_part}{numbers.span(span[1] - span[0])} of {numbers.span(last - first)}"

    def _legend(self, style: Style, width: int) -> Line:
        """Return the legend with as many curves as fit. Curves with a less obvious meaning come first."""
        entries = [("━", "muted" if style.smoothing else style.roles[1], "median"), (" ", "text+band", "low to high")]
        if style.roles[0] is not None:
            entries.insert(0, ("━", style.roles[0], f"{style.worst}est"))
        if style.smoothing:
            entries.insert(0, ("━", "strong", f"smoothed {style.smoothing:g}"))
        legend: Line = []
        for mark, role, name in entries:
            longer: Line = [*legend, *([("  ", "muted")] if legend else []), (mark, role), (f" {name}", "muted")]
            if line_width(longer) > width:
                break
            legend = longer
        return legend

    def _axis(self, series: ChartSeries, span: tuple[float, float], width: int, cursor: int | None) -> list[Line]:
        """Return the horizontal axis, with ✖ at each value that is not finite, and the line of times below it."""
        columns = width - AXIS_WIDTH
        broken = {
            curves.column_of_moment(at, span, 2 * columns) // 2
            for at, *values in zip(series.seconds, series.low, series.median, series.high, strict=False)
            if span[0] <= at <= span[1] and any(value is not None and finite_or_none(value) is None for value in values)
        }
        rule: Line = [(" " * (AXIS_WIDTH - 1) + "└", "rule")]
        for x in range(columns):
            rule.append(("✖", "bad") if x in broken else ("┴", "key") if x == cursor else ("─", "rule"))
        return [rule, [(" " * AXIS_WIDTH + axis.span_labels(*span, columns), "muted")]]

    def _point(self, series: ChartSeries, span: tuple[float, float]) -> int | None:
        """Return the index of the point on the chart that is nearest to the cursor; None if there is no point."""
        return curves.nearest_point(series.seconds, span, span[1] if self._at_s is None else self._at_s)

    def _values(self, series: ChartSeries, span: tuple[float, float], place: int | None) -> list[Line]:
        """Return the values under the cursor, in two lines."""
        if place is None:
            return [[(" ddpmon recorded nothing in this time", "muted")]]
        shown = quantity_named(self.choice.name)
        when: Line = [
            (" at ", "muted"),
            (axis.moment_label(series.seconds[place], min(span[1] - span[0], 60.0)), "strong"),
        ]
        worst = None
        if isinstance(series, SeriesView):
            worst = series.worst[place]
            if series.steps[place]:
                when += [("  step ", "muted"), (numbers.count(series.steps[place]), "strong")]
            unit = measured_each(shown)
            many = f"{numbers.count(series.merged)} {unit}s" if series.merged > 1 else f"one {unit}"
            when.append((f"   {many} per point", "muted"))
        low, median, high = series.low[place], series.median[place], series.high[place]
        parts: list[tuple[str, float | None]] = [("low", low), ("median", median), ("high", high)]
        if low == high:
            parts = [("value", median)]
        if self.choice.smoothing:
            parts.append(("smoothed", curves.smoothed(series.median[: place + 1], self.choice.smoothing)[-1]))
        values: Line = []
        for name, value in parts:
            values += [(f" {name} ", "muted"), (f"{value_formatter(shown.unit)(value):<6}", "text")]
            if worst is not None and name == shown.worse and self.choice.name != "step":
                values.append((f" rank {worst} ", "warn" if self._alarmed else "info"))
        if worst is not None and self.choice.name == "step":
            values.append((f" rank {worst} arrived last", "info"))
        return [when, values]

    @property
    def _alarmed(self) -> bool:
        snapshot = self.frame.snapshot
        return self.choice.name == "own" and snapshot is not None and snapshot.severity != "info"

    # --- keys ---

    def _place(self) -> tuple[ChartSeries, tuple[float, float]] | None:
        series = requested_series(self.frame, self.choice)
        return None if series is None or not series.seconds else (series, self._shown(series))

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Move the cursor by a number of columns, or to the first (0) or the newest (-1) moment."""
        placed = self._place()
        if placed is None:
            return
        series, span = placed
        if to is not None:
            self._go(None if to < 0 else self._extent(series)[0], series)
            return
        place, by = self._point(series, span), by or 0
        if place is None or not by:
            return
        dots = 2 * self._columns
        # Go to the point nearest to the middle of a column, so that the key "left" undoes the key "right".
        dot = 2 * (curves.column_of_moment(series.seconds[place], span, dots) // 2 + by) + 0.5
        at = span[0] + dot / max(1, dots - 1) * (span[1] - span[0])
        target = curves.nearest_point(series.seconds, span, at)
        if target is None or target == place:
            target = place + (1 if by > 0 else -1)
        if 0 <= dot < dots and 0 <= target < len(series.seconds) and span[0] <= series.seconds[target] <= span[1]:
            at = series.seconds[target]
        self._go(at, series)

    def page(self, direction: int) -> None:
        """Move the shown span by its own length, back (-1) or forward (1)."""
        placed = self._place()
        if placed is not None:
            series, span = placed
            whole = span[1] - span[0]
            self._go((span[1] if self._at_s is None else self._at_s) + direction * whole, series, by=direction * whole)

    def _go(self, at: float | None, series: ChartSeries, by: float = 0.0) -> None:
        """Move the cursor to a moment, and the shown span with it.

        Args:
            at: The moment; None for the newest moment.
            series: The series on the chart.
            by: Seconds by which the shown span moves in addition.

        """
        first, last = self._extent(series)
        begin, end = self._shown(series)
        if at is None or at >= last:
            self._at_s = self._end_s = None
        else:
            at = self._at_s = max(first, at)
            whole = end - begin
            end = max(first + whole, end + by)
            end = max(at, min(end, at + whole))
            self._end_s = None if self._span_s is None or end >= last else end
        self.redraw()

    def zoom(self, direction: int) -> None:
        """Halve (1) or double (-1) the shown span, with the cursor at the same column."""
        placed = self._place()
        if placed is None:
            return
        series, (begin, end) = placed
        first, last = self._extent(series)
        whole = (end - begin) * (0.5 if direction > 0 else 2.0)
        if whole >= last - first:
            self._span_s = self._end_s = None
        elif end > begin:
            whole = max(min(LEAST_SPAN_S, last - first), whole)
            at = end if self._at_s is None else min(end, max(begin, self._at_s))
            share = (at - begin) / (end - begin)
            until = max(first + whole, at + (1 - share) * whole)
            self._span_s, self._end_s = whole, None if until >= last else until
        self.redraw()

    def next_window(self) -> None:
        """Show the next window: the whole run, or its last hour, ten minutes or minute, if shorter than the run."""
        placed = self._place()
        if placed is None:
            return
        first, last = self._extent(placed[0])
        fit_in = [None, *(window for window in WINDOWS_S if window < last - first)]
        now = fit_in.index(self._span_s) if self._span_s in fit_in and self._end_s is None else -1
        self._span_s, self._end_s = fit_in[(now + 1) % len(fit_in)], None
        if self._at_s is not None and self._span_s is not None and self._at_s < last - self._span_s:
            self._at_s = None
        self.redraw()

    # --- the mouse ---

    def _moment(self, x: int, span: tuple[float, float]) -> float:
        """Return the time in the middle of a column of the screen."""
        return curves.moment_of(x - AXIS_WIDTH, span, self._columns)

    def _zoom_to_drag(self) -> None:
        """Show the span of time that the mouse was dragged over."""
        placed, drag, self._drag = self._place(), self._drag, None
        if placed is None or drag is None:
            return
        series, span = placed
        first, last = self._extent(series)
        begin, end = (self._moment(x, span) for x in sorted(drag))
        end = min(end, last)
        self._span_s = max(min(LEAST_SPAN_S, last - first), end - begin)
        self._at_s = self._end_s = None if end >= last else max(first + self._span_s, end)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked column."""
        placed = self._place()
        if placed is not None and event.x >= AXIS_WIDTH and not self._dragged:
            self._at_s = self._moment(event.x, placed[1])
            self.redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragged = False
        self._drag = (event.x, event.x) if event.x >= AXIS_WIDTH else None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Extend the marked span of a drag to the mouse. Textual calls the base class's handler too."""
        if self._drag is not None:
            self._drag = self._drag[0], max(AXIS_WIDTH, event.x)

    async def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._drag is not None and abs(self._drag[1] - self._drag[0]) >= LEAST_DRAG:
            self._dragged = True
            await self.run_action("screen.do('zoom_to_drag')")
        self._drag = None

    def on_leave(self) -> None:
        """Cancel a drag that leaves the chart. Textual calls the base class's handler too."""
        self._drag = None

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        await self._wheel(event, 1)

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        await self._wheel(event, -1)

    async def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        """Zoom around the mouse."""
        event.stop()
        if (placed := self._place()) is not None and event.x >= AXIS_WIDTH:
            self._at_s = self._moment(event.x, placed[1])
            await self.run_action(f"screen.do('zoom', {direction})")
