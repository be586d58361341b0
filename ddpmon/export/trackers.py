"""`ddpmon publish`: writes a run's series and findings to W&B, MLflow and TensorBoard with their official clients."""

from __future__ import annotations

import importlib
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ddpmon.errors import DdpmonError, UsageError
from ddpmon.messages import QUANTITIES, SeriesRequest, SeriesView, Snapshot, ViewRequest
from ddpmon.redaction import redact_text
from ddpmon.runs import Run

PREFIX = "ddpmon/"
MAX_SERIES_POINTS = 512
"""Largest number of points per series of an ended run."""
Values = Mapping[str, float]


@dataclass(frozen=True)
class Point:
    """Values of a run at one moment, for a tracker."""

    step: int
    at: float
    """Unix time in seconds."""
    values: Values


class Tracker(Protocol):
    """An experiment tracker that a run is published to."""

    def write(self, point: Point) -> None:
        """Write the values of one moment. From call to call, step numbers never decrease."""

    def finish(self, verdict: str, report: str) -> None:
        """Write the verdict and the report, in Markdown, and close the tracker."""


def live_point(shot: Snapshot) -> Point:
    """Return the current values: means over all ranks, and the lowest, median and highest value of each quantity over
    ranks.
    """
    world = {
        "step_ms": shot.step_ms_p50, "loss": shot.loss, "samples_per_s": shot.samples_per_s,
        "wait_share": shot.wait_share, "findings": float(sum(finding.is_lasting for finding in shot.findings)),
    }  # fmt: skip
    values = {name: value for name, value in world.items() if value is not None}
    for row in QUANTITIES.values():
        of_ranks = [value for rank in shot.ranks if (value := row.get(rank)) is not None and math.isfinite(value)]
        if of_ranks:
            values |= _ends(row.name, min(of_ranks), statistics.median(of_ranks), max(of_ranks))
    return Point(shot.step, shot.at, _named(values))


def recorded_points(shot: Snapshot, view_of: Callable[[ViewRequest], Snapshot]) -> Iterator[Point]:
    """Yield the points of an ended run, oldest first. view_of: returns the snapshot with the requested parts."""
    values: dict[tuple[int, float], dict[str, float]] = {}
    for name in shot.quantities:
        series = view_of(ViewRequest(series=SeriesRequest((name,), columns=MAX_SERIES_POINTS))).series
        for step, seconds, ends in [] if series is None else _rows(series):
            values.setdefault((step, shot.run.started_at + seconds), {}).update(_ends(name.replace(":", "/"), *ends))
    last = 0
    for (step, at), of_moment in sorted(values.items()):
        last = max(last, step)  # Samples between two steps have no step.
        yield Point(last, at, _named(of_moment))


def _rows(series: SeriesView) -> Iterator[tuple[int, float, tuple[float | None, float | None, float | None]]]:
    yield from zip(series.steps, series.seconds, zip(series.low, series.median, series.high, strict=True), strict=True)


def _ends(name: str, low: float | None, median: float | None, high: float | None) -> dict[str, float]:
    ends = {"lowest": low, "median": median, "highest": high}
    return {f"{name}/{end}": value for end, value in ends.items() if value is not None}


def _named(values: Values) -> Values:
    return {f"{PREFIX}{name}": value for name, value in values.items() if math.isfinite(value)}


CLIENT_PACKAGES = {"--wandb": "wandb", "--mlflow": "mlflow-skinny", "--tensorboard": "tensorboard"}
"""Package of each tracker's client, by option. The client's module has the name of the option."""


def check_client(option: str) -> None:
    """Raise UsageError if the client of an option is not installed. Do not import it."""
    if importlib.util.find_spec(option.removeprefix("--")) is None:
        package = CLIENT_PACKAGES[option]
        raise UsageError(f"{option} needs {package}, which is not installed: pip install {package}")


class WandbTracker:
    """A run in W&B with the same id as ddpmon's run, so that publishing again continues it."""

    def __init__(self, project: str, run: Run) -> None:
        wandb = importlib.import_module("wandb")
        config = {"script": run.script, "script_args": run.script_args, "world_size": run.world_size}
        # By default, W&B also sends output, code and the machine's load, which the user did not request here.
        settings = wandb.Settings(console="off", disable_code=True, disable_git=True, x_disable_stats=True)
        self._run = wandb.init(
            project=project, id=run.id, name=run.name, resume="allow", config=config, settings=settings
        )

    def write(self, point: Point) -> None:
        self._run.log(dict(point.values), step=point.step)

    def finish(self, verdict: str, report: str) -> None:
        self._run.summary.update({f"{PREFIX}verdict": verdict, f"{PREFIX}report": report})
        self._run.finish()


class MlflowTracker:
    """A run in the experiment "ddpmon" of an MLflow store."""

    def __init__(self, uri: str, run: Run) -> None:
        mlflow = importlib.import_module("mlflow")
        self._metric = importlib.import_module("mlflow.entities").Metric
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        found = self._client.get_experiment_by_name("ddpmon")
        experiment = self._client.create_experiment("ddpmon") if found is None else found.experiment_id
        tags = {"ddpmon.run": run.id, "ddpmon.script": run.script}
        self._id = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id

    def write(self, point: Point) -> None:
        metrics = [self._metric(*pair, round(point.at * 1e3), point.step) for pair in point.values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def finish(self, verdict: str, report: str) -> None:
        self._client.set_tag(self._id, "ddpmon.verdict", verdict)
        self._client.log_text(self._id, report, "ddpmon-report.md")
        self._client.set_terminated(self._id)


class TensorboardTracker:
    """A folder with event files for TensorBoard."""

    def __init__(self, folder: str, run: Run) -> None:
        proto = "tensorboard.compat.proto"
        self._event = importlib.import_module(f"{proto}.event_pb2").Event
        self._summary = importlib.import_module(f"{proto}.summary_pb2")
        self._tensor = importlib.import_module(f"{proto}.tensor_pb2").TensorProto
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter
        self._writer = writer(f"{folder}/{run.name}-{run.id}")
        self._step = 0

    def write(self, point: Point) -> None:
        self._step = point.step
        values = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._add(values, point.at)

    def finish(self, verdict: str, report: str) -> None:
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        metadata = self._summary.SummaryMetadata(plugin_data=plugin)
        text = self._tensor(dtype="DT_STRING", string_val=[report.encode()])
        self._add([self._summary.Summary.Value(tag=f"{PREFIX}report", metadata=metadata, tensor=text)], time.time())
        self._writer.close()

    def _add(self, values: list[Any], at: float) -> None:
        summary = self._summary.Summary(value=values)
        self._writer.add_event(self._event(wall_time=at, step=self._step, summary=summary))


_TRACKERS: dict[str, Callable[[str, Run], Tracker]] = {
    "--wandb": WandbTracker, "--mlflow": MlflowTracker, "--tensorboard": TensorboardTracker,
}  # fmt: skip


def opened(option: str, place: str, run: Run) -> Tracker:
    """Open a tracker. Raise DdpmonError if its client rejects the destination."""
    tracker: Tracker = guarded(option, lambda: _TRACKERS[option](place, run))
    return tracker


def guarded(option: str, action: Callable[[], Any]) -> Any:
    """Call `action` of a client and return its result. Errors become a DdpmonError of one line without secrets."""
    try:
        return action()
    except DdpmonError:
        raise
    except Exception as error:
        lines = redact_text(str(error)).strip().splitlines()
        raise DdpmonError(f"{option}: {type(error).__name__}: {lines[0][:300] if lines else ''}") from None
