"""`ddpmon report --format html`: the report as one page that needs no network, with charts to point at.

Charts are Plotly's, whose script the page holds (some 5 MB); text is put in by Jinja, which escapes it. Both come with
the extra `html`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ddpmon.errors import UsageError
from ddpmon.export import report as reports
from ddpmon.messages import HeatWish, SeriesWish, Wish
from ddpmon.plain import plain
from ddpmon.store.parts import with_parts

if TYPE_CHECKING:
    from ddpmon.messages import HeatView, SeriesView, Snapshot
    from ddpmon.runs import Run

CHARTED = ("own", "loss", "step", "wait", "transfer", "samples", "gpu", "cpu")
"""Quantities through time, in this order, as far as the run has them; then what its script logs."""
MOST_CHARTS = 12
MOST_POINTS = 512
MOST_HEAT_ROWS = 256
HEAT_COLUMNS = 400
_NEEDED = "report --format html needs Plotly and Jinja: pip install 'ddpmon[html]'"


@dataclass
class Views:
    """What a page shows beside the report: parts of a snapshot at the run's end, or so far."""

    series: list[SeriesView] = field(default_factory=list)
    heat: HeatView | None = None


def of(run: Run) -> str:
    """The page of a run. RecordingError if there is nothing to tell, UsageError without the libraries."""
    _check_libraries()
    report, shot, store = reports.with_source(run)
    return page(report, views(shot, store))


def views(shot: Snapshot, store: Any) -> Views:
    """The parts that a page has charts of. store: that the snapshot was made from."""
    names = [name for name in CHARTED if name in shot.quantities]
    names += [name for name in shot.quantities if name.startswith("log:")]
    parts = Views()
    for name in names[:MOST_CHARTS]:
        series = with_parts(shot, store, Wish(series=SeriesWish(name, points=MOST_POINTS))).series
        if series is not None and any(value is not None for value in series.median):
            parts.series.append(series)
    wish = HeatWish("own", _steps_of_a_column(shot.step), MOST_HEAT_ROWS, HEAT_COLUMNS)
    parts.heat = with_parts(shot, store, Wish(heat=wish)).heat
    return parts


def page(report: dict[str, Any], parts: Views) -> str:
    """The whole page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from ddpmon.export.page import charts

    environment = Environment(
        loader=PackageLoader("ddpmon.export.page", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["plain"] = plain
    environment.filters["shown"] = lambda value: plain(f"{value:.4g}" if isinstance(value, float) else str(value))
    template = environment.get_template("page.html")
    rows = reports.rows(report["ranks"])
    return template.render(
        title=reports.title(report["run"]),
        severity=_severity(report),
        sentences=reports.sentences(report),
        facts=reports.facts(report) if report["steps"]["window"] else [],
        findings=report["findings"],
        columns=reports.COLUMNS,
        rows=rows,
        folded=reports.folded(report["ranks"]),
        earlier=reports.earlier(report) if report["steps"]["window"] else [],
        ended=[(row[0], reports.how_it_ended(how)) for row, how in rows if how],
        charts=charts.all_of(report, parts.series, parts.heat),
        script=charts.script(),
    )


def _steps_of_a_column(steps: int) -> int:
    """The narrowest column with which all of so many steps fit."""
    from ddpmon.messages import HEAT_STEPS

    return next((width for width in HEAT_STEPS if steps <= width * HEAT_COLUMNS), HEAT_STEPS[-1])


def _severity(report: dict[str, Any]) -> str:
    """The gravest severity of the findings: "critical", "warn", "info"."""
    severities = {finding["severity"] for finding in report["findings"]}
    return next((severity for severity in ("critical", "warn") if severity in severities), "info")


def _check_libraries() -> None:
    if find_spec("jinja2") is None or find_spec("plotly") is None:
        raise UsageError(_NEEDED)
