"""`ddpmon report --format html`: writes the report as one HTML page that needs no network and no JavaScript.

Charts are SVG. A chart shows the values under the mouse pointer as a tooltip. Jinja inserts and escapes the texts.
"""

from __future__ import annotations

import math
import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpmon.analysis.evidence_words import evidence_words
from ddpmon.analysis.words import duration
from ddpmon.export import report as reports
from ddpmon.messages import WHOLE_RUN, SeriesRequest, ViewRequest
from ddpmon.plain import plain
from ddpmon.store.parts import with_parts

if TYPE_CHECKING:
    from ddpmon.messages import HeatView, SeriesView, Snapshot
    from ddpmon.runs import Run

CHARTED = ("own", "loss", "step", "wait", "transfer", "samples", "gpu", "cpu")
"""Quantities that get a chart if the run has them, in this order. Charts of quantities that the script logs follow."""
MOST_CHARTS = 12
MOST_POINTS = 512
MOST_HEAT_ROWS = 256
HEAT_COLUMNS = 256
_BESIDE_FINDINGS = {"Why", "Next", "Also"}
"""Labels of the report's sentences that the page leaves out, because it shows their text with the findings."""


@dataclass
class Views:
    """The data of a page's charts, from the snapshot at the run's end or the current one."""

    series: list[SeriesView] = field(default_factory=list)
    heat: HeatView | None = None


def of(run: Run) -> str:
    """Return the HTML page of a run. Raise RecordingError if nothing is recorded."""
    report, shot, store = reports.with_source(run)
    return page(report, views(shot, store), started(run))


def started(run: Run) -> list[tuple[str, str]]:
    """Return (label, text) pairs about the command, its folder, times and versions."""
    took = "" if run.took_s is None else f", {'watched for' if run.attached else 'took'} {duration(run.took_s)}"
    ended = [] if run.ended_at is None else [("Ended", f"{_date(run.ended_at)}{took}")]
    return [
        ("Command", shlex.join([run.script, *run.script_args])),
        ("Folder", f"{run.cwd} on {run.host}"),
        ("Started", _date(run.created_at)),
        *ended,
        ("Versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())),
    ]


def _date(at: float) -> str:
    """Return a Unix time as text with its time zone, because the page may be read in another time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))


def views(shot: Snapshot, store: Any) -> Views:
    """Return the data of a page's charts. store: the store from which the snapshot was made."""
    names = [name for name in CHARTED if name in shot.quantities]
    names += [name for name in shot.quantities if name.startswith("log:")]
    parts = Views()
    for name in names[:MOST_CHARTS]:
        series = with_parts(shot, store, ViewRequest(series=SeriesRequest((name,), columns=MOST_POINTS))).series
        if series is not None and any(value is not None and math.isfinite(value) for value in series.median):
            parts.series.append(series)
    request = SeriesRequest(("own",), columns=HEAT_COLUMNS, per_column=WHOLE_RUN, rows=MOST_HEAT_ROWS)
    parts.heat = with_parts(shot, store, ViewRequest(heat=request)).heat
    return parts


def page(report: dict[str, Any], parts: Views, start: list[tuple[str, str]]) -> str:
    """Return the whole page as HTML. start: the result of `started`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from ddpmon.export.page import charts

    environment = Environment(
        loader=PackageLoader("ddpmon.export.page", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["plain"] = plain
    template = environment.get_template("page.html")
    rows = reports.rows(report["ranks"])
    sentences = [(word, sentence) for word, sentence in reports.sentences(report) if word not in _BESIDE_FINDINGS]
    return template.render(
        title=reports.title(report["run"]),
        severity=_severity(report),
        verdict=[sentence for word, sentence in sentences if word == "Verdict"],
        labelled=[*(one for one in sentences if one[0] != "Verdict"), *start],
        facts=reports.facts(report) if report["steps"]["window"] else [],
        findings=[(finding, _about(finding, report)) for finding in report["findings"]],
        columns=reports.REPORT_COLUMNS,
        rows=rows,
        folded=reports.folded(report["ranks"]),
        earlier=reports.earlier(report) if report["steps"]["window"] else [],
        ended=[(row[0], reports.how_it_ended(how)) for row, how in rows if how],
        charts=charts.all_of(report, parts.series, parts.heat),
    )


def _about(finding: dict[str, Any], report: dict[str, Any]) -> str:
    """Return a line with the kind, severity, steps, cost and evidence of a finding."""
    facts = [finding["kind"].replace("_", " "), finding["severity"]]
    if finding["since_step"] is not None:
        until = "" if finding["until_step"] is None else f" to {finding['until_step']:,}"
        facts.append(f"{'from' if until else 'since'} step {finding['since_step']:,}{until}")
    if finding["cost_ms"] is not None:
        facts.append(f"{finding['cost_ms']:.1f} ms a step")
    if finding.get("lost_hours") is not None:
        facts.append(f"{reports.hours(report, finding['lost_hours'])} lost")
    return "; ".join([", ".join(facts), *evidence_words(finding["evidence"])])


def _severity(report: dict[str, Any]) -> str:
    """Return the highest severity of the findings: "critical", "warn" or "info"."""
    severities = {finding["severity"] for finding in report["findings"]}
    return next((severity for severity in ("critical", "warn") if severity in severities), "info")
