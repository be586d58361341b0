"""Do to a run what the rows of docs/faults.md name, and check the state that they promise."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ddpmon import runs
from ddpmon.messages import MAX_STEP, Batch, decode_from_rank
from ddpmon.messages.folder import TAILS, unpack_tail
from ddpmon.recording.recording import Recording
from tests.conftest import wait_for
from tests.disks import SmallDisk
from tests.faults.table import Row
from tests.faults.training import Training
from tests.tui.terminal import Terminal

MEGABYTES = 64
"""Size of the disk that a run is recorded on."""


def _signal(training: Training, what: str, *numbers: signal.Signals) -> list[int]:
    pids = training.processes(what)
    assert pids
    for pid in pids:
        for number in numbers:
            os.kill(pid, number)
    return pids


@contextlib.contextmanager
def broken(disk: SmallDisk, training: Training, row: Row) -> Iterator[None]:
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
        elif row.what == "the `ddpmon run` that started the run":
            training.starter.kill()
        elif row.what == "the disk":
            disk.fill()
            repairs.callback(disk.free)
        elif row.what == "`telemetry.db`":
            for path in runs.run_dir(training.id).glob("telemetry.db*"):
                path.unlink()
        elif row.what == "the run's folder":
            folder = runs.run_dir(training.id)
            aside = disk.path / "aside"
            folder.rename(aside)
            repairs.callback(aside.rename, folder)
        elif row.what == "the folder of the sockets":
            folder = runs.socket_dir(training.id)
            _remove_whole(folder)
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


def _remove_whole(folder: Path) -> None:
    """Remove a folder in which a hub that notices makes its sockets again."""

    def gone() -> bool:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
            return True
        return False

    wait_for(gone, 30)


def stands_as_said(training: Training, row: Row) -> None:
    """Wait until `ddpmon status` says what the row says, and exits with what it says."""
    told: list[object] = []

    def holds() -> bool:
        told[:] = said, code = training.status()
        warns_of_cores = code == 1 and "starved" in said  # true where other programs keep them busy
        return row.says in said and (code == row.exits_with or (row.exits_with == 0 and warns_of_cores))

    try:
        training.until(holds)
    except AssertionError:
        raise AssertionError(f"not within 90 s: {row.says!r} and exit code {row.exits_with}; last: {told}") from None


def assert_whole(training: Training) -> None:
    """Every step that a rank made is in the recording, or in what it left for it."""
    facts = training.until(training.facts)
    assert facts["step"] == training.step()
    folder = runs.run_dir(training.id)
    with Recording(runs.load(training.id), tails=False) as recording:
        steps_of = {each.rank: recording.steps.whole_steps(each.id, 1, MAX_STEP) for each in recording.processes()}
    recorded = [(rank, step.step) for rank, steps in steps_of.items() for step in steps]
    assert len(set(recorded)) == len(recorded)
    steps = set(recorded)
    for left in (folder / TAILS).glob("*-*[0-9]"):  # where nobody came to take it before the ranks had ended
        frames, trouble = unpack_tail(left.read_bytes())
        assert not trouble
        batches = [message for message in map(decode_from_rank, frames) if isinstance(message, Batch)]
        steps |= {(batch.rank, step.step) for batch in batches for step in batch.steps}
    assert sorted(steps) == [(rank, step) for rank in range(2) for step in range(1, training.step() + 1)]


def assert_counted(training: Training) -> None:
    """Every step that a rank made is in the recording or among those that were lost."""
    with sqlite3.connect(runs.run_dir(training.id) / "telemetry.db") as db:
        query = (
            "SELECT rank, steps, (SELECT coalesce(sum(count), 0) FROM step_blocks WHERE process = id) FROM processes"
        )
        rows = db.execute(query).fetchall()
    db.close()
    assert training.facts()["records_lost"] == sum(steps - recorded for _, steps, recorded in rows)
    for rank, steps, _ in rows:
        if written := (training.folder / f"stop.step.{rank}").read_text():  # else it was killed as it wrote
            assert int(written) <= steps <= int(written) + 1
