"""`ddpmon metrics --otlp URL`: the same metrics, pushed to an OpenTelemetry collector over OTLP/HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpmon.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client.core import Metric

TIMEOUT_S = 5.0
"""Time limit of a push with its retries: the next one repeats its values."""


def exporter(url: str) -> OTLPMetricExporter:
    """Return what pushes there. UsageError: it is no URL, or the extra is not installed."""
    if not url.startswith(("http://", "https://")) or len(url) <= len("https://"):
        raise UsageError(f"--otlp {url}: give a URL, such as http://127.0.0.1:4318/v1/metrics")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError:
        raise UsageError("--otlp needs the package opentelemetry: pip install 'ddpmon[otlp]'") from None
    return OTLPMetricExporter(url, timeout=TIMEOUT_S)


def push(to: OTLPMetricExporter, metrics: Iterable[Metric]) -> bool:
    """Send the metrics as they are now; whether they were taken."""
    from opentelemetry.sdk.metrics.export import MetricExportResult

    return to.export(converted(metrics, time.time_ns())) is MetricExportResult.SUCCESS


def converted(metrics: Iterable[Metric], now_ns: int) -> MetricsData:
    """Convert metrics to OpenTelemetry's form: names, labels and values are those of OpenMetrics, counters are
    cumulative sums.
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
