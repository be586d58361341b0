"""Draws the charts of a report's HTML page: phases of each rank, a heat map, and quantities over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ddpmon import numbers
from ddpmon.export.page.svg import (
    BOTTOM,
    CHART_WIDTH,
    LEFT,
    RIGHT,
    TICK_INTERVALS_S,
    TOP,
    Plot,
    hint,
    legend,
    picture,
    text,
)
from ddpmon.messages import LOGGED, PHASES, HeatView, SeriesView
from ddpmon.messages.quantities import EXCESS, NUMBER, PERCENT, QUANTITIES, SHARE, STEP_SERIES
from ddpmon.plain import plain

COLOURS = dict(zip(PHASES, ("#cc79a7", "#56b4e9", "#0072b2", "#009e73", "#999999", "#f0e442", "#e69f00"), strict=True))
"""The palette of Okabe and Ito, whose colours can be told apart with any colour vision."""
_INK, _BAND = "#0072b2", "#cfe6f7"
_NOT_FINITE = 255
_STEPS_OF_CELLS = 253
"""Difference between the byte of a cell with the highest value and that of a cell with the lowest value, which is 1."""
_HEAT = ((0.0, (242, 242, 242)), (0.25, (247, 208, 138)), (0.6, (230, 159, 0)), (1.0, (140, 45, 4)))
"""Colours of the heat map: (share of the highest value, RGB colour). Colours in between are interpolated."""
_UNKNOWN = (255, 255, 255)
MOST_BARS = 64
_ROW = 24
"""Height of a bar in px."""


@dataclass(frozen=True)
class Chart:
    """A chart of the page: its title, and its HTML with the SVG."""

    title: str
    html: Markup


def all_of(report: dict[str, Any], series: Sequence[SeriesView], heat: HeatView | None) -> list[Chart]:
    """Return every chart that has data."""
    charts = [phases(report["ranks"])] if any(rank["own_ms"] is not None for rank in report["ranks"]) else []
    if heat is not None and heat.columns and len(heat.rows) > 1:
        charts.append(heat_map(heat))
    lengths = next((one for one in series if one.name == "step"), None)
    end_s = max((one.seconds[-1] for one in series), default=0.0)
    return [*charts, *(through_time(one, lengths, end_s) for one in series)]


def phases(ranks: list[dict[str, Any]]) -> Chart:
    """Return a chart of each rank's phases. If there are more than MOST_BARS ranks, it shows those with the most own
    time.
    """
    ordered = sorted(ranks, key=lambda rank: -(rank["own_ms"] or 0))[:MOST_BARS]
    ordered.sort(key=lambda rank: int(rank["rank"]))
    lengths = [sum(rank["phases_ms"][phase] or 0.0 for phase in PHASES) for rank in ordered]
    plot = Plot(TOP + BOTTOM + _ROW * len(ordered), (0.0, max(lengths)), (0.0, float(len(ordered))))
    plot.x_axis("ms of a step", numbers.short)
    for place, rank in enumerate(ordered):
        above, at_ms = TOP + _ROW * place, 0.0
        plot.parts.append(text(f"rank {rank['rank']}", LEFT - 6, above + 16, "end"))
        for phase in PHASES:
            ms = rank["phases_ms"][phase] or 0.0
            begin, end = plot.at_x(at_ms), plot.at_x(at_ms + ms)
            told = hint(f"rank {rank['rank']}: {phase} {numbers.ms(ms)} ms")
            plot.add("rect", told, x=begin, y=above + 2, width=end - begin, height=_ROW - 4, fill=COLOURS[phase])
            at_ms += ms
    more = (
        ""
        if len(ordered) == len(ranks)
        else f"; only the {len(ordered)} of {len(ranks):,} ranks with the most own time"
    )
    colours = legend([(colour, phase) for phase, colour in COLOURS.items()])
    return Chart(f"Where each rank's step goes{more}", colours + plot.drawn())


def heat_map(heat: HeatView) -> Chart:
    """Return a heat map of each rank's excess of own time over the median of its peers, over time."""
    first = max(1, heat.first * heat.steps)
    tall = max(2, min(_ROW, 600 // len(heat.rows)))
    plot = Plot(TOP + BOTTOM + tall * len(heat.rows), (float(first), float(heat.last_step)), (0.0, 1.0))
    top = max(25.0, min(100.0, 100 * heat.high))
    palette = [_UNKNOWN, *(_colour(_percent(heat, cell) / top) for cell in range(1, _NOT_FINITE)), _UNKNOWN]
    across = CHART_WIDTH - LEFT - RIGHT
    plot.add(
        "image", href=picture(heat.cells, heat.columns, palette), x=LEFT, y=TOP, width=across,
        height=tall * len(heat.rows), preserveAspectRatio="none", style="image-rendering:pixelated",
    )  # fmt: skip
    for place, row in enumerate(heat.rows):
        name = _row_name(row.ranks)
        if tall >= 12 or place % math.ceil(12 / tall) == 0:
            plot.parts.append(text(name, LEFT - 6, TOP + tall * (place + 0.5) + 4, "end"))
        told = hint(f"{name}: {_peak(heat, place)}")
        plot.add("rect", told, x=LEFT, y=TOP + tall * place, width=across, height=tall, class_="point")
    plot.x_axis("step", lambda value: numbers.count(round(value)))
    shown = [(share, _colour(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    colours = legend(
        [
            (f"rgb{colour}", f"{share * top:.0f}%{' and more' if share == 1 else ' or less' if share == 0 else ''}")
            for share, colour in shown
        ]
    )
    return Chart("Own time in excess of the peers' median", colours + plot.drawn())


def through_time(series: SeriesView, lengths: SeriesView | None, end_s: float) -> Chart:
    """Draw the median and the range of all ranks over time. The tooltip of a point names the most extreme rank.

    Args:
        series: The quantity.
        lengths: The lengths of steps, to find pauses; None if they were not measured.
        end_s: End of the time axis, in seconds since the run started.

    """
    row = QUANTITIES.get(series.name)
    scale = row.unit.screen if row else 1.0
    unit = "%" if row and row.unit in {SHARE, EXCESS, PERCENT} else ""
    low, median, high = (_scaled(values, scale) for values in (series.low, series.median, series.high))
    measured = [value for values in (low, median, high) for value in values if value is not None]
    floor = 0.0 if row and row.unit is not NUMBER and min(measured) >= 0 else min(measured)
    plot = Plot(200, (0.0, end_s), (floor, max(measured)))
    plot.y_axis(lambda value: numbers.short(value) + unit)
    plot.x_axis("since the run started", numbers.duration, TICK_INTERVALS_S)
    pieces = stretches(series, lengths)
    for begin, end in pieces:
        places = [place for place in range(begin, end) if median[place] is not None]
        band = [(place, low[place], high[place]) for place in places]
        over = [(series.seconds[place], value) for place, _, value in band if value is not None]
        under = [(series.seconds[place], value) for place, value, _ in band if value is not None]
        plot.area([*over, *reversed(under)], fill=_BAND)
        line = [(series.seconds[place], value) for place in places if (value := median[place]) is not None]
        if len(line) == 1:
            plot.add("circle", cx=plot.at_x(line[0][0]), cy=plot.at_y(line[0][1]), r=1.5, fill=_INK)
        plot.line(line, fill="none", stroke=_INK, stroke_width=1.5)
    edges = [plot.at_x(at) for at in series.seconds]
    for place, (before, here, after) in enumerate(
        zip([edges[0], *edges], edges, [*edges[1:], edges[-1]], strict=False)
    ):
        left, right = (before + here) / 2, (here + after) / 2
        words = _named(place, median=median, lowest=low, highest=high)
        who = "" if series.worst[place] is None else f"; furthest out: rank {series.worst[place]}"
        step = f"step {numbers.count(series.steps[place])}, " if series.steps[place] else ""
        told = hint(f"{step}{numbers.duration(series.seconds[place])}: {', '.join(words)}{who}")
        plot.add(
            "rect", told, x=left, y=TOP, width=max(0.5, right - left), height=plot.height - TOP - BOTTOM, class_="point"
        )
    entries = (
        [(_INK, "median of all ranks"), (_BAND, "lowest to highest rank")] if low != high else [(_INK, "all ranks")]
    )
    if len(pieces) > 1:
        entries.append(("#ffffff", "gaps are pauses without training steps (evaluation, checkpoint, other)"))
    return Chart(_title(series.name), legend(entries) + plot.drawn())


def stretches(series: SeriesView, lengths: SeriesView | None) -> list[tuple[int, int]]:
    """Return index ranges (first, end) of points without a pause between them.

    There is a pause before a point whose steps took less than half of the time since the previous point.
    """
    if series.name not in STEP_SERIES or lengths is None or lengths.seconds != series.seconds:
        return [(0, len(series.seconds))]
    bounds = [0]
    for place, (before, at) in enumerate(itertools.pairwise(series.seconds), 1):
        step_ms = lengths.median[place]
        if step_ms is not None and math.isfinite(step_ms) and step_ms / 1e3 * lengths.merged < (at - before) / 2:
            bounds.append(place)
    return list(itertools.pairwise([*bounds, len(series.seconds)]))


def _named(place: int, **values: Sequence[float | None]) -> list[str]:
    return [f"{name} {numbers.short(each[place])}" for name, each in values.items()]


def _scaled(values: Sequence[float | None], scale: float) -> list[float | None]:
    """Return values times `scale`; None for values that are missing or not finite."""
    return [None if value is None or not math.isfinite(value) else value * scale for value in values]


def _title(name: str) -> str:
    if name.startswith(LOGGED):
        return f"{plain(name.removeprefix(LOGGED))} (logged)"
    return QUANTITIES[name].chart or name if name in QUANTITIES else plain(name)


def _row_name(ranks: tuple[int, int]) -> str:
    first, last = ranks
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _percent(heat: HeatView, cell: int) -> float:
    """Return the percentage that a cell represents."""
    return 100 * (heat.low + (cell - 1) / _STEPS_OF_CELLS * (heat.high - heat.low))


def _peak(heat: HeatView, place: int) -> str:
    """Return a text with the highest value of a row, and the step of this value."""
    cells = heat.cells[place * heat.columns : (place + 1) * heat.columns]
    known = [cell if 0 < cell < _NOT_FINITE else 0 for cell in cells]
    highest = max(known)
    if not highest:
        return "no data"
    step = max(1, (heat.first + known.index(highest)) * heat.steps)
    return f"at most {_percent(heat, highest):+.0f}%, at step {numbers.count(step)}"


def _colour(share: float) -> tuple[int, int, int]:
    """Return the heat map's colour for a share of the highest value."""
    share = min(1.0, max(0.0, share))
    (low, below), (high, above) = next(pair for pair in itertools.pairwise(_HEAT) if share <= pair[1][0])
    part = (share - low) / (high - low)
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(below, above, strict=True))
    return red, green, blue
