"""Exports the state of runs as metrics for Prometheus or OpenTelemetry.

`ddpmon export --format openmetrics` writes the metrics to a file, `ddpmon metrics` serves or pushes them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest

from ddpmon.errors import UsageError
from ddpmon.messages import HOST, QUANTITIES, RUN_STATES, Quantity, RankView, Snapshot
from ddpmon.plain import plain

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client.core import Metric


Labels: TypeAlias = Mapping[str, object]
Sample: TypeAlias = tuple[Labels, float | None]
Family: TypeAlias = tuple[str, str, str, str, list[Sample]]
"""A metric family: (name, type, unit, help, samples)."""


class SnapshotMetrics:
    """Collects the metrics of snapshots for prometheus_client."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = list(snapshots)

    def collect(self) -> list[Metric]:
        """Return a family for each measured quantity, with samples labelled by run."""
        metrics: dict[str, Metric] = {}
        for shot in self._snapshots:
            run = {"run": plain(shot.run.name), "run_id": plain(shot.run.id)}
            for name, kind, unit, meaning, samples in _families(shot):
                suffix = "_total" if kind == "counter" else ""
                for labels, value in samples:
                    if value is not None:
                        metric = metrics.setdefault(name, Metric(name, meaning, kind, unit))
                        texts = {key: plain(str(label)) for key, label in labels.items()}
                        metric.add_sample(name + suffix, run | texts, float(value))
        return list(metrics.values())


def text(snapshot: Snapshot) -> str:
    """Return the snapshot in OpenMetrics 1.0 text."""
    exposition: bytes = generate_latest(SnapshotMetrics([snapshot]))  # type: ignore[no-untyped-call]
    return exposition.decode()


def _families(shot: Snapshot) -> Iterator[Family]:
    """Yield the metric families of a snapshot. Times are in seconds, as OpenMetrics requires."""
    states: list[Sample] = [({"state": name}, float(name == shot.state)) for name in RUN_STATES]
    yield "ddpmon_run_state", "gauge", "", "1 for the current state of the run.", states
    yield "ddpmon_world_size", "gauge", "", "Ranks of the run.", [({}, float(shot.run.world_size))]
    yield "ddpmon_steps", "counter", "", "Finished steps.", [({}, float(shot.step))]
    yield "ddpmon_records_lost", "counter", "", "Lost records of steps.", [({}, float(shot.records_lost))]
    yield (
        *("ddpmon_step_seconds", "gauge", "seconds", "Median length of the last steps."),
        [({}, _seconds(shot.step_ms_p50))],
    )
    yield (
        "ddpmon_samples_per_second",
        "gauge",
        "",
        "Training samples per second of all ranks together.",
        [({}, shot.samples_per_s)],
    )
    yield "ddpmon_loss", "gauge", "", "Mean loss of the last steps over all ranks.", [({}, shot.loss)]
    yield (
        "ddpmon_wait_ratio",
        "gauge",
        "ratio",
        "Share of the step in which a rank waits for other ranks.",
        [({}, shot.wait_share)],
    )
    lasting = [finding for finding in shot.findings if finding.is_lasting]
    kinds = sorted({(finding.kind, finding.severity) for finding in lasting})
    counts: list[Sample] = [
        (
            {"kind": kind, "severity": severity},
            float(sum((f.kind, f.severity) == (kind, severity) for f in lasting)),
        )
        for kind, severity in kinds
    ]
    yield "ddpmon_findings", "gauge", "", "Findings, by kind.", counts
    yield from _of_ranks(shot.ranks)


def _of_ranks(ranks: list[RankView]) -> Iterator[Family]:
    families: dict[str, list[Quantity]] = {}
    for row in QUANTITIES.values():
        families.setdefault(row.metric_name, []).append(row)
    for name, (first, *alike) in families.items():
        samples = [sample for row in (first, *alike) for sample in _samples(row, ranks)]
        kind = "counter" if first.unit.rises else "gauge"
        yield name, kind, first.unit.base, f"{first.meaning}.", samples


def _samples(row: Quantity, ranks: list[RankView]) -> list[Sample]:
    """Return one sample per rank, or per host if the quantity is measured per host."""
    label: dict[str, object] = dict([row.metric_label] if row.metric_label else [])
    values = [(rank, value * row.unit.scale) for rank in ranks if (value := row.get(rank)) is not None]
    if row.where == HOST:
        hosts = {rank.host: value for rank, value in reversed(values)}  # Each rank of a host measures the same value.
        return [({"host": host, **label}, hosts[host]) for host in sorted(hosts)]
    return [({"rank": rank.rank, **label}, value) for rank, value in values]


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3


TIMEOUT_S = 5.0
"""Longest time, in seconds, of a push with its retries. If it fails, the next push sends current values."""


def exporter(url: str) -> OTLPMetricExporter:
    """Return the exporter that pushes to a URL. Raise UsageError if the URL is invalid or the extra is not
    installed.
    """
    if not url.startswith(("http://", "https://")) or len(url) <= len("https://"):
        raise UsageError(f"--otlp {url}: give a URL, such as http://127.0.0.1:4318/v1/metrics")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError:
        raise UsageError("--otlp needs the package opentelemetry: pip install 'ddpmon[otlp]'") from None
    return OTLPMetricExporter(url, timeout=TIMEOUT_S)


def push(to: OTLPMetricExporter, metrics: Iterable[Metric]) -> bool:
    """Send the current metrics; return whether the collector accepted them."""
    from opentelemetry.sdk.metrics.export import MetricExportResult

    return to.export(converted(metrics, time.time_ns())) is MetricExportResult.SUCCESS


def converted(metrics: Iterable[Metric], now_ns: int) -> MetricsData:
    """Convert metrics of prometheus_client to OpenTelemetry metrics.

    Names, labels and values are those of OpenMetrics; counters become cumulative sums.
    """
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    converted_metrics = []
    for metric in metrics:
        if not metric.samples:
            continue
        points = [export.NumberDataPoint(dict(s.labels), 0, now_ns, s.value) for s in metric.samples]
        data: export.Gauge | export.Sum = export.Gauge(points)
        if metric.type == "counter":
            data = export.Sum(points, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        converted_metrics.append(export.Metric(metric.name, metric.documentation, metric.unit, data))
    scope = export.ScopeMetrics(InstrumentationScope("ddpmon"), converted_metrics, "")
    resource = Resource({"service.name": "ddpmon"})
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])
