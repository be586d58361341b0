"""Every row of docs/faults.md that ends training happens to a real run of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.disks import SmallDisk
from tests.faults.breaking import MEGABYTES, assert_counted, assert_whole, broken, stands_as_said
from tests.faults.table import Row, rows
from tests.faults.training import GRACE_S, Training

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
ENDED = [row for row in rows() if row.ends]


@pytest.mark.parametrize("row", ENDED, ids=str)
def test_training_ends(module_disk: Callable[[float], SmallDisk], row: Row) -> None:
    lasts = row.what == "everything but the ranks"
    disk = module_disk(MEGABYTES)
    training = Training(disk.path, torchrun=row.what == "torchrun")
    try:
        with broken(disk, training, row):
            if lasts:
                assert training.goes_on()
                training.end()
            stands_as_said(training, row)
        assert training.facts()["state"] == row.training.removeprefix("ends: ")
        if (row.what, row.happens) == ("torchrun", "SIGKILL"):
            # the ranks had the grace for their checkpoints, though their launcher was gone
            assert GRACE_S > 0
            assert [(training.folder / f"stop.{rank}").exists() for rank in range(2)] == [True, True]
        if lasts:
            assert_whole(training)
        if row.lost == "nothing":
            assert training.facts()["records_lost"] == 0
        else:
            assert row.lost == "its last steps, counted"
            assert_counted(training)
    finally:
        training.close()
