"""A run on a disk that fills: it trains, is stopped and ends as on any other, and how it ended is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon import proc, runs
from ddpmon.launch import processes, stop
from ddpmon.recording.written_file import SPARE_BYTES
from ddpmon.source import LiveSource
from tests.conftest import Started, ddpmon_program, wait_for
from tests.disks import SmallDisk
from tests.launch.conftest import WAITS


@pytest.fixture
def disk(small_disk, home, monkeypatch):
    """A small disk with all that is kept of runs on it; the sockets are elsewhere."""
    made = small_disk(4.0)
    monkeypatch.setenv("DDPMON_HOME", str(made.path / "home"))
    yield made
    made.free()
    for run in runs.all_runs():
        stop.request_stop(run, now=True)
        assert stop.wait_until_gone(run, 30)


@pytest.fixture
def waiting(disk, launch, tmp_path) -> Started:
    """A run that ends with 7 once there is a file `go`, on a disk that is full by now."""
    started = launch(sys.executable, "-c", WAITS, str(tmp_path / "go"))
    wait_for((runs.socket_dir(started.id) / "view.sock").exists)
    wait_for(lambda: started.run.hub)
    fill(disk, started)
    return started


def fill(disk: SmallDisk, started: Started) -> None:
    """Fill the disk to the end of the run: without the room that the hub holds for its counts, and frees as it ends."""
    spare = started.folder / "telemetry.spare"
    wait_for(lambda: spare.exists() and spare.stat().st_size == SPARE_BYTES)
    os.truncate(spare, 0)
    disk.fill()


def test_the_exit_code_reaches_who_waits_for_it_while_the_disk_is_full(disk, tmp_path):
    command = [ddpmon_program(), "exec", "--headless", "--", sys.executable, "-c", WAITS, str(tmp_path / "go")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watcher:
        wait_for(lambda: (found := runs.all_runs()) and found[-1].agent)
        started = Started(runs.all_runs()[-1].id)
        wait_for((runs.socket_dir(started.id) / "view.sock").exists)
        fill(disk, started)
        assert disk.is_full()
        (tmp_path / "go").touch()
        told, _ = watcher.communicate(timeout=60)
    assert watcher.returncode == 7, told
    assert "Traceback" not in told
    ended = started.run
    assert (ended.state(), ended.exit_code) == ("failed", 7)
    assert not ended.supervisor.alive()
    assert not ended.hub.alive()
    assert not runs.socket_dir(started.id).exists()
    assert {path.name for path in started.folder.glob("run.json*")} == {"run.json", "run.json.lock"}


def test_a_run_on_a_full_disk_can_be_stopped(waiting, disk):
    assert disk.is_full()
    stop.request_stop(waiting.run)
    ended = waiting.until_gone()
    assert (ended.state(), ended.agent.alive()) == ("stopped", False)
    disk.free()


def test_how_a_run_ended_is_written_once_there_is_room(waiting, disk, tmp_path):
    """Even the reserved room cannot be written to on a file system that copies what it changes."""
    hub = waiting.run.hub
    processes.send_signal(hub, signal.SIGSTOP)  # A hub that cannot open its recording frees what it has written of it.
    wait_for(lambda: proc.is_stopped(hub.pid))
    reserve = waiting.folder / "run.json.reserve"
    os.truncate(reserve, 0)
    disk.fill()
    (tmp_path / "go").touch()
    wait_for(lambda: not reserve.exists())  # it was of no use
    assert not waiting.run.ended
    disk.free()
    ended = waiting.until_gone()
    assert (ended.state(), ended.exit_code) == ("failed", 7)
    assert "cannot write run.json: No space left on device" in waiting.log("supervisor")
    assert json.loads((waiting.folder / "report.json").read_text())["run"]["exit_code"] == 7


def test_a_hub_that_dies_on_a_full_disk_is_started_again_and_serves(waiting, disk, tmp_path):
    first = waiting.run.hub
    processes.send_signal(first, signal.SIGKILL)
    wait_for(lambda: not first.alive())
    disk.fill()  # what the hub had deleted and held open is free by now
    source = LiveSource(waiting.run)
    try:
        shot = wait_for(source.snapshot)
    finally:
        source.close()
    assert shot.state == "waiting"
    assert waiting.run.supervisor.alive()
    disk.free()
    (tmp_path / "go").touch()
    assert waiting.until_gone().exit_code == 7
    assert (waiting.folder / "report.json").exists()
    assert not list(waiting.folder.glob("*.damaged"))


@pytest.mark.parametrize("at", ["the first folder", "run.json"])
def test_a_start_on_a_full_disk_is_one_line_and_leaves_nothing(disk, cli, at):
    if at == "run.json":
        runs.runs_dir().mkdir(parents=True, mode=0o700)
        runs.home().chmod(0o700)
    disk.fill()
    before = _files(disk.path)
    told = cli("exec", "--headless", "--", "true")
    assert told.returncode == 1
    (line,) = told.stderr.splitlines()
    assert line.startswith("ddpmon: ")
    assert "No space left on device" in line
    assert "DDPMON_HOME" in line
    assert told.stdout == ""
    assert _files(disk.path) == before
    assert not list(Path(os.environ["DDPMON_RUNTIME_DIR"]).iterdir())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name not in {".ballast", "home", "runs"})
