"""Every row of docs/faults.md happens to a real run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from ddpmon import runs
from ddpmon.errors import RunNotFoundError
from tests.conftest import wait_for
from tests.disks import SmallDisk
from tests.faults.table import Row, rows
from tests.faults.training import GRACE_S, Training
from tests.tui.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SURVIVED = [row for row in rows() if not row.ends]
ENDED = [row for row in rows() if row.ends]
MEGABYTES = 64


class Stage:
    """One run that survives one thing after the other; a new one where the last did not."""

    def __init__(self, disk: SmallDisk) -> None:
        self.disk = disk
        self._training: Training | None = None

    def training(self) -> Training:
        if self._training is None or not self._runs(self._training):
            self.close()
            self._training = Training(self.disk.path)
        return self._training

    @staticmethod
    def _runs(training: Training) -> bool:
        with contextlib.suppress(RunNotFoundError):
            return training.run.state() == "running"
        return False

    def close(self) -> None:
        if self._training is not None:
            self._training.close()
            self._training = None


@pytest.fixture(scope="module")
def stage(module_disk: Callable[[float], SmallDisk]) -> Iterator[Stage]:
    stage = Stage(module_disk(MEGABYTES))
    yield stage
    stage.close()


def _signal(training: Training, what: str, *numbers: signal.Signals) -> list[int]:
    pids = training.processes(what)
    assert pids
    for pid in pids:
        for number in numbers:
            os.kill(pid, number)
    return pids


@contextlib.contextmanager
def broken(stage: Stage, training: Training, row: Row) -> Iterator[None]:
    """While this is entered, it is broken as the row says."""
    with contextlib.ExitStack() as repairs:
        if row.what == "a dashboard":
            shown = Terminal("ddpmon", "attach", rows=24, columns=80)
            repairs.callback(shown.process.wait)
            repairs.callback(shown.process.kill)
            shown.wait_for("broken")
            if row.happens == "its terminal closes":
                shown.hang_up()
                shown.wait_end()
            else:
                shown.process.send_signal(signal.SIGKILL if row.happens == "SIGKILL" else signal.SIGSTOP)
                repairs.callback(shown.process.send_signal, signal.SIGCONT)
        elif row.what == "the `ddpmon run` that started it":
            training.starter.kill()
        elif row.what == "the disk":
            stage.disk.fill()
            repairs.callback(stage.disk.free)
        elif row.what == "the run's folder":
            folder = runs.run_dir(training.id)
            aside = stage.disk.path / "aside"
            folder.rename(aside)
            repairs.callback(aside.rename, folder)
        elif row.what == "the folder of the sockets":
            folder = runs.socket_dir(training.id)
            shutil.rmtree(folder)
            if row.happens != "removed":
                folder.mkdir()
                folder.chmod(0o777)
                repairs.callback(shutil.rmtree, folder)
        elif row.happens == "SIGSTOP, then SIGCONT":
            for pid in _signal(training, row.what, signal.SIGSTOP):
                repairs.callback(os.kill, pid, signal.SIGCONT)
        else:
            _signal(training, row.what, signal.Signals[row.happens])
        yield


def stands_as_said(training: Training, row: Row) -> None:
    """Wait until `ddpmon status` says what the row says, and exits with what it says."""
    told: list[object] = []

    def holds() -> bool:
        told[:] = training.status()
        return row.says in str(told[0]) and told[1] == row.exits_with

    try:
        wait_for(holds, 90)
    except AssertionError:
        raise AssertionError(f"not within 90 s: {row.says!r} and exit code {row.exits_with}; last: {told}") from None


@pytest.mark.parametrize("row", SURVIVED, ids=str)
def test_training_survives(stage: Stage, row: Row) -> None:
    training = stage.training()
    with broken(stage, training, row):
        if row.training == "goes on":
            assert training.goes_on()
        else:
            assert row.training == "stands still, then goes on"
        stands_as_said(training, row)
    assert training.goes_on()
    wait_for(lambda: training.status()[0].split()[1] == "RUNNING", 90)
    reached = training.step()
    facts = wait_for(lambda: (facts := training.facts()).get("step", 0) >= reached and facts, 90)
    assert row.lost == "nothing"
    assert facts["records_lost"] == 0
    assert facts["state"] == "running"


def test_after_all_of_it_the_recording_holds_every_step(stage: Stage) -> None:
    training = stage.training()
    training.end()
    run = wait_for(lambda: (run := training.run).ended and run, 60)
    assert run.state() == "done"
    assert_whole(training)


@pytest.mark.parametrize("row", ENDED, ids=str)
def test_training_ends(module_disk: Callable[[float], SmallDisk], row: Row) -> None:
    lasts = row.what == "everything but the ranks"
    training = Training(module_disk(MEGABYTES).path, steps=400 if lasts else 1_000_000)
    try:
        with broken(Stage(SmallDisk(training.folder)), training, row):
            stands_as_said(training, row)
        assert training.facts()["state"] == row.training.removeprefix("ends: ")
        if (row.what, row.happens) == (
            "torchrun",
            "SIGKILL",
        ):  # the ranks had the grace for their checkpoints, though their launcher was gone
            assert GRACE_S > 0
            assert [(training.folder / f"stop.{rank}").exists() for rank in range(2)] == [True, True]
        if lasts:
            assert training.step() == 400
            assert_whole(training)
        assert training.facts()["records_lost"] == 0
    finally:
        training.close()


def assert_whole(training: Training) -> None:
    """Every step that a rank made is in the recording, or in what it left for it."""
    facts = wait_for(training.facts, 60)
    assert facts["step"] == training.step()
    with sqlite3.connect(runs.run_dir(training.id) / "telemetry.db") as db:
        counts = db.execute("SELECT count(*), min(step), max(step) FROM steps GROUP BY process").fetchall()
    db.close()
    assert counts == [(training.step(), 1, training.step())] * 2
