"""`ddpmon metrics`: an HTTP endpoint at which Prometheus reads the state of this user's runs on this machine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import start_http_server

from ddpmon import runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.export.openmetrics import SnapshotMetrics
from ddpmon.messages import Snapshot
from ddpmon.plain import plain
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.runs import Run
from ddpmon.source import snapshot_now

MAX_HUB_WAIT_S = 2.0
"""Longest wait, in seconds, for a hub's answer. Prometheus itself waits for 10 s by default."""
MAX_HUBS_ASKED = 32
"""Number of hubs that are asked at the same time, so that the waits for several silent hubs do not add up."""
ENDED_S = 900.0
"""Seconds for which an ended run stays in the response, so that an alert on its failure can fire."""
CACHED_RESPONSE_S = 1.0
"""Seconds within which requests get the same response."""


class Runs:
    """Collects the metrics of running and recently ended runs for prometheus_client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: list[Metric] = []
        self._asked_at = float("-inf")
        self._ended: dict[str, Snapshot] = {}

    def collect(self) -> list[Metric]:
        """Return the current metrics of all runs."""
        with self._lock:
            if time.monotonic() - self._asked_at >= CACHED_RESPONSE_S:
                self._metrics = self._gathered()
                self._asked_at = time.monotonic()
            return self._metrics

    def restricted_registry(self, names: Collection[str]) -> _Named:
        """Return a collector of only those metrics that a request names, as in `/metrics?name[]=ddpmon_loss`."""
        return _Named(self, names)

    def _gathered(self) -> list[Metric]:
        answers = GaugeMetricFamily(
            "ddpmon_hub_answers",
            "1 if the run has not ended and its hub answers, otherwise 0.",
            labels=["run", "run_id"],
        )
        everything = [(run, run.state()) for run in runs.all_runs()]
        running = self._running([run for run, state in everything if state == "running"], answers)
        over = self._over({run.id: run for run, state in everything if state != "running" and _ended_lately(run)})
        return [answers, *SnapshotMetrics([*running, *over]).collect()]

    @staticmethod
    def _running(here: list[Run], answers: GaugeMetricFamily) -> list[Snapshot]:
        of_this_machine = [run for run in here if not run.elsewhere()]
        with ThreadPoolExecutor(MAX_HUBS_ASKED, "ddpmon-metrics") as hubs:
            snapshots = list(hubs.map(_snapshot, of_this_machine))
        for run, snapshot in zip(of_this_machine, snapshots, strict=True):
            answers.add_metric([plain(run.name), run.id], float(snapshot is not None))
        return [snapshot for snapshot in snapshots if snapshot is not None]

    def _over(self, over: dict[str, Run]) -> list[Snapshot]:
        """Return the snapshots of recently ended runs. Each recording is read only once."""
        self._ended = {run_id: shot for run_id, shot in self._ended.items() if run_id in over}
        for run_id, run in over.items():
            if run_id not in self._ended:
                with contextlib.suppress(DdpmonError):
                    self._ended[run_id] = recorded_snapshot(run)
        return list(self._ended.values())


class _Named:
    """Collects only the metrics whose family or sample has one of the requested names."""

    def __init__(self, every: Runs, names: Collection[str]) -> None:
        self._every, self._names = every, names

    def collect(self) -> list[Metric]:
        return [
            metric
            for metric in self._every.collect()
            if metric.name in self._names or any(sample.name in self._names for sample in metric.samples)
        ]


def _snapshot(run: Run) -> Snapshot | None:
    """Return the run's snapshot; None if the run's hub does not answer or sends an invalid message."""
    with contextlib.suppress(DdpmonError):
        return snapshot_now(run, MAX_HUB_WAIT_S)
    return None


def _ended_lately(run: Run) -> bool:
    return run.ended_at is not None and time.time() - run.ended_at < ENDED_S


def serve(host: str, port: int) -> int:
    """Serve the metrics at an address in the background; return the port. Raise UsageError if that is impossible."""
    try:
        server, _ = start_http_server(port, host, Runs())
    except (OSError, OverflowError) as error:
        raise UsageError(f"--listen {host}:{port}: {getattr(error, 'strerror', None) or error}") from None
    return int(server.server_port)
