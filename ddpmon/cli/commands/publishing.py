"""ddpmon publish: writes a run's numbers and findings to W&B, MLflow or TensorBoard."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ddpmon import runs
from ddpmon.cli.options import Within, every, run_argument, trackers
from ddpmon.errors import UsageError
from ddpmon.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpmon.export.trackers import Tracker
    from ddpmon.messages import Snapshot
    from ddpmon.runs import Run


@click.command()
@run_argument("run", required=False)
@trackers
@every("Time between two points while the run is going.", 15.0, Within(1, 3600))
def publish(run: str | None, every: float, **places: str | None) -> int:
    """Write the series and findings of RUN to W&B, MLflow or TensorBoard.

    If the run is still going, the command writes new points until the run ends, or until Ctrl-C. If the run has ended,
    the command writes all series. The names begin with ddpmon/; each quantity has the median, lowest and highest value
    of the ranks. At the end the command adds the verdict, and the report with all findings. It uses the official
    clients, which you install yourself.
    """
    from ddpmon.export.trackers import CLIENT_PACKAGES, opened

    target = runs.find(run)
    wanted = {f"--{name}": place for name, place in places.items() if place}
    if not wanted:
        raise UsageError(f"publish needs a destination: give at least one of {', '.join(CLIENT_PACKAGES)}")
    tools = ", ".join(option.removeprefix("--") for option in wanted)
    print(plain(f"writing {target.name} ({target.id}) to {tools}"), flush=True)

    def begin() -> dict[str, Tracker]:
        return {option: opened(option, place, target) for option, place in wanted.items()}

    followed = _follow(target, begin, every) if target.state() == "running" else _written(target, begin())
    if followed is None:
        print("nothing is written from here: the data of rank 0 is on another machine, or there is none")
        return 0
    return _finish(target.id, followed)


def _follow(run: Run, begin: Callable[[], dict[str, Tracker]], every_s: float) -> dict[str, Tracker] | None:
    """Write points until the run ends or a signal comes. Return the trackers; None if there was nothing to write.

    The first point is written once this machine's hub has data of rank 0. Such a hub is the root hub, and only the root
    hub knows all ranks.

    Args:
        run: The run.
        begin: Opens the trackers.
        every_s: Seconds between two points.

    """
    from ddpmon.cli.watching import Signals
    from ddpmon.export.trackers import live_point
    from ddpmon.messages import END_STATES
    from ddpmon.source import attach

    due, last_step, opened = 0.0, 0, None
    with contextlib.closing(attach(run)) as source, Signals(owns_run=False) as signals:
        while not (signals.stops or signals.hung_up):
            shot = source.snapshot()
            if shot is not None and shot.run.id != run.id:
                return opened
            ended = shot is not None and shot.state in END_STATES
            due_now = ended or time.monotonic() >= due
            if shot is not None and shot.step > last_step and due_now and _has_rank_0(shot):
                due, last_step = time.monotonic() + every_s, shot.step
                opened = opened or begin()
                _each(opened, "write", live_point(shot))
            if ended:
                break
            time.sleep(0.2)
    return opened


def _has_rank_0(shot: Snapshot) -> bool:
    return any(rank.rank == 0 and rank.health != "missing" for rank in shot.ranks)


def _written(run: Run, opened: dict[str, Tracker]) -> dict[str, Tracker]:
    """Write all recorded series of a run that has ended."""
    from ddpmon.export.trackers import recorded_points
    from ddpmon.recording.recorded import recorded_state
    from ddpmon.store.parts import with_parts

    shot, store = recorded_state(run)
    for point in recorded_points(shot, partial(with_parts, shot, store)):
        _each(opened, "write", point)
    return opened


def _finish(run_id: str, opened: dict[str, Tracker]) -> int:
    from ddpmon.export import markdown
    from ddpmon.export import report as reports

    built = reports.build(runs.load(run_id))
    _each(opened, "finish", built["verdict"], markdown.report(built))
    return 0


def _each(opened: dict[str, Tracker], method: str, *arguments: Any) -> None:
    from ddpmon.export.trackers import guarded

    for option, tracker in opened.items():
        guarded(option, lambda tracker=tracker: getattr(tracker, method)(*arguments))  # type: ignore[misc]
