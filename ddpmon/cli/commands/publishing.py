"""ddpmon publish: a run's numbers and findings for W&B, MLflow or TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddpmon.cli.options import Within, every, run_argument

if TYPE_CHECKING:
    from ddpmon.export.trackers import Tracker
    from ddpmon.runs import Run


@click.command()
@run_argument("run", required=False)
@click.option("--wandb", metavar="PROJECT", help="Write to this project of W&B. WANDB_MODE=offline works too.")
@click.option("--mlflow", metavar="URI", help="Write to the experiment ddpmon of this MLflow server or database.")
@click.option("--tensorboard", metavar="FOLDER", help="Write event files for TensorBoard into a folder below this one.")
@every("Time between two points of a run that goes on.", 15.0, Within(1, 3600))
def publish(run: str | None, every: float, **places: str | None) -> int:
    """Write the series and findings of RUN to W&B, MLflow or TensorBoard.

    The command follows a run that goes on until the run ends, or until Ctrl-C. If the run has ended, the command writes
    all series. The names begin with ddpmon/; each quantity has the median, lowest and highest value of the ranks.
    At the end the command adds the verdict, and the report with all findings. It uses the official clients, which you
    install yourself.
    """
    from ddpmon import runs
    from ddpmon.errors import UsageError
    from ddpmon.export import trackers
    from ddpmon.plain import plain

    target = runs.find(run)
    wanted = {f"--{name}": place for name, place in places.items() if place}
    if not wanted:
        raise UsageError(f"publish: say where to, with {', '.join(trackers.TRACKERS)}")
    opened = {option: trackers.opened(option, place, target) for option, place in wanted.items()}
    print(plain(f"{target.name} ({target.id}) goes to {', '.join(wanted)}"), flush=True)
    if target.state() == "running":
        _follow(target, opened, every)
    else:
        _write_recorded(target, opened)
    return _finish(target.id, opened)


def _follow(run: Run, opened: dict[str, Tracker], every_s: float) -> None:
    """Write a point now and then until the run ends, or a signal comes."""
    import time

    from ddpmon.cli.watching import Signals
    from ddpmon.export.trackers import live_point
    from ddpmon.messages import END_STATES
    from ddpmon.source import attach

    due, last_step = 0.0, 0
    source = attach(run)
    try:
        with Signals(owns_run=False) as signals:
            while not (signals.stops or signals.hung_up):
                shot = source.snapshot()
                ended = shot is not None and shot.state in END_STATES
                if shot is not None and shot.step > last_step and (ended or time.monotonic() >= due):
                    due, last_step = time.monotonic() + every_s, shot.step
                    _each(opened, "write", live_point(shot))
                if ended:
                    return
                time.sleep(0.2)
    finally:
        source.close()


def _write_recorded(run: Run, opened: dict[str, Tracker]) -> None:
    from functools import partial

    from ddpmon.export.trackers import recorded_points
    from ddpmon.recording.recorded import recorded_state
    from ddpmon.store.parts import with_parts

    shot, store = recorded_state(run)
    for point in recorded_points(shot, partial(with_parts, shot, store)):
        _each(opened, "write", point)


def _finish(run_id: str, opened: dict[str, Tracker]) -> int:
    from ddpmon import runs
    from ddpmon.export import markdown
    from ddpmon.export import report as reports

    built = reports.build(runs.load(run_id))
    _each(opened, "finish", built["verdict"], markdown.report(built))
    return 0


def _each(opened: dict[str, Tracker], method: str, *arguments: Any) -> None:
    from ddpmon.export.trackers import guarded

    for option, tracker in opened.items():
        guarded(option, lambda tracker=tracker: getattr(tracker, method)(*arguments))  # type: ignore[misc]
