"""The charts of a report's page: phases of each rank, heat, quantities through time. The browser draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ddpmon.messages import LOGGED, PHASES, HeatView, SeriesView
from ddpmon.messages.quantities import QUANTITIES
from ddpmon.plain import plain

COLOURS = dict(zip(PHASES, ("#cc79a7", "#56b4e9", "#0072b2", "#009e73", "#999999", "#f0e442", "#e69f00"), strict=True))
"""Okabe and Ito's, which people with any colour vision can tell apart."""
_INK, _BAND = "#0072b2", "rgba(86,180,233,0.25)"
_NOT_FINITE = 255
_STEPS_OF_CELLS = 253
"""Between the cell of the lowest value, 1, and that of the highest."""
MOST_BARS = 64


@dataclass(frozen=True)
class Chart:
    """A chart as it stands in the page."""

    title: str
    html: str
    """Of Plotly, whose script the page has once."""


def script() -> str:
    """Plotly's own, which draws the charts."""
    source: str = get_plotlyjs()
    return source


def all_of(report: dict[str, Any], series: Sequence[SeriesView], heat: HeatView | None) -> list[Chart]:
    """Every chart that there is something for."""
    charts = [phases(report["ranks"])] if any(rank["own_ms"] is not None for rank in report["ranks"]) else []
    if heat is not None and heat.columns and len(heat.rows) > 1:
        charts.append(heat_map(heat))
    return [*charts, *map(through_time, series)]


def phases(ranks: list[dict[str, Any]]) -> Chart:
    """Where each rank's step goes: of very many ranks those with the most own time."""
    ordered = sorted(ranks, key=lambda rank: -(rank["own_ms"] or 0))[:MOST_BARS]
    ordered.sort(key=lambda rank: -int(rank["rank"]))
    names = [f"rank {rank['rank']}" for rank in ordered]
    figure = go.Figure()
    for phase in PHASES:
        figure.add_bar(
            y=names,
            x=[rank["phases_ms"][phase] for rank in ordered],
            name=phase,
            orientation="h",
            marker_color=COLOURS[phase],
            hovertemplate=f"%{{y}}: {phase} %{{x:.2f}} ms<extra></extra>",
        )
    figure.update_layout(barmode="stack", xaxis_title="ms of a step", legend_traceorder="normal")
    more = "" if len(ordered) == len(ranks) else f"; the {len(ordered)} with the most own time of {len(ranks):,}"
    return Chart(f"Where each rank's step goes{more}", _drawn(figure, 120 + 24 * len(ordered)))


def heat_map(heat: HeatView) -> Chart:
    """Own time over the step's median, rank by rank through time."""
    names = [_row_name(row.ranks) for row in heat.rows]
    rows = [
        [_value(heat, cell) for cell in heat.cells[place * heat.columns : (place + 1) * heat.columns]]
        for place in range(len(heat.rows))
    ]
    steps = [max(1, (heat.first + column) * heat.steps) for column in range(heat.columns)]
    figure = go.Figure(
        go.Heatmap(
            z=rows,
            x=steps,
            y=names,
            colorscale=[(0, "#f2f2f2"), (0.25, "#f7d08a"), (0.6, "#e69f00"), (1, "#8c2d04")],
            zmin=0,
            zmax=max(25.0, min(100.0, 100 * heat.high)),
            colorbar_ticksuffix="%",
            hovertemplate="%{y}, step %{x}: %{z:+.0f}%<extra></extra>",
        )
    )
    figure.update_layout(xaxis_title="step", yaxis_autorange="reversed")
    return Chart("Own time over the median of all ranks", _drawn(figure, 140 + min(600, 22 * len(names))))


def through_time(series: SeriesView) -> Chart:
    """The median rank, the band of all, and at each point who is furthest out."""
    worst = ["–" if rank is None else str(rank) for rank in series.worst]
    seconds, low, high = list(series.seconds), _finite(series.low), _finite(series.high)
    figure = go.Figure()
    if low != high:
        hidden = {"mode": "lines", "line_width": 0, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(x=seconds, y=low, **hidden)
        figure.add_scatter(x=seconds, y=high, fill="tonexty", fillcolor=_BAND, **hidden)
    figure.add_scatter(
        x=seconds,
        y=_finite(series.median),
        mode="lines",
        line={"color": _INK, "width": 1.5},
        showlegend=False,
        customdata=list(zip(series.steps, low, high, worst, strict=True)),
        hovertemplate="step %{customdata[0]}, %{x:.1f} s: median %{y:.4g}, %{customdata[1]:.4g} to "
        "%{customdata[2]:.4g}; furthest: rank %{customdata[3]}<extra></extra>",
    )
    figure.update_layout(xaxis_title="seconds since the run started")
    return Chart(_title(series.name), _drawn(figure, 280))


def _title(name: str) -> str:
    if name.startswith(LOGGED):
        return plain(name.removeprefix(LOGGED))
    return QUANTITIES[name].chart or name if name in QUANTITIES else plain(name)


def _row_name(ranks: tuple[int, int]) -> str:
    first, last = ranks
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _value(heat: HeatView, cell: int) -> float | None:
    """Of a cell, in percent; None where nothing is known."""
    if cell in {0, _NOT_FINITE}:
        return None
    return round(100 * (heat.low + (cell - 1) / _STEPS_OF_CELLS * (heat.high - heat.low)), 1)


def _finite(values: Sequence[float | None]) -> list[float | None]:
    return [value if value is not None and math.isfinite(value) else None for value in values]


def _drawn(figure: go.Figure, height: int) -> str:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 10, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        font={"family": "system-ui, sans-serif", "size": 13},
        dragmode="zoom",
    )
    drawn: str = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
    )
    return drawn
