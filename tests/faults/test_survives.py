"""Every row of docs/faults.md that training survives happens to a real run: one after the other, to the same one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from ddpmon.errors import RunNotFoundError
from tests.conftest import wait_for
from tests.disks import SmallDisk
from tests.faults.breaking import MEGABYTES, assert_whole, broken, stands_as_said
from tests.faults.table import Row, rows
from tests.faults.training import Training

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SURVIVED = [row for row in rows() if not row.ends]


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


@pytest.mark.parametrize("row", SURVIVED, ids=str)
def test_training_survives(stage: Stage, row: Row) -> None:
    training = stage.training()
    with broken(stage.disk, training, row):
        if row.training == "goes on":
            assert training.goes_on()
        else:
            assert row.training == "stands still, then goes on"
        stands_as_said(training, row)
    assert training.goes_on()
    training.until(lambda: training.status()[0].split()[1] == "RUNNING")
    reached = training.step()
    facts = training.until(lambda: (facts := training.facts()).get("step", 0) >= reached and facts)
    assert row.lost == "nothing"
    assert facts["records_lost"] == 0
    assert facts["state"] == "running"


def test_after_all_of_it_the_recording_holds_every_step(stage: Stage) -> None:
    training = stage.training()
    training.end()
    run = wait_for(lambda: (run := training.run).ended and run, 60)
    assert run.state() == "done"
    assert_whole(training)
