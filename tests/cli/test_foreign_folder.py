"""A run's folder from somebody else: what is no plain file in it holds no reader up."""

import os
import socket

import pytest

from ddpmon import runs
from tests.in_process import called
from tests.recordings import record
from tests.worlds import own_times

pytestmark = pytest.mark.timeout(60)
LOGS = ("logs/launcher.log", "logs/ranks/x/attempt_0/0/stderr.log", "logs/ranks/exec/attempt_0/1/stderr.log")
BESIDE = (*LOGS, "report.json", "supervisor.lock", "run.json.lock", "tail/0-4711", "telemetry.spare")
READERS = (("status",), ("report",), ("ls",), ("logs",))


def _link(path):
    path.symlink_to("/dev/zero")


def _socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(path.parent)  # a path of a socket is short
        bound.bind(path.name)
        os.chdir(here)


@pytest.fixture
def folder(home):
    return runs.run_dir(record(own_times(60, 2)).id)


@pytest.mark.parametrize("make", [os.mkfifo, _link, _socket], ids=["pipe", "link", "socket"])
def test_readers_take_plain_files_only(folder, make):
    for name in BESIDE:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        make(path)
    told = {words[0]: called(*words) for words in READERS}
    assert "60 steps" in told["status"].stdout
    assert "60 steps" in told["report"].stdout
    assert not any("Traceback" in each.stdout + each.stderr for each in told.values())


@pytest.mark.parametrize("name", ["telemetry.db", "telemetry.db-wal", "telemetry.db-journal", "telemetry.db-shm"])
def test_a_pipe_in_place_of_the_recording_is_one_line(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    told = called("report")
    assert told.returncode != 0
    assert "this is not a regular file" in told.stderr


def test_a_pipe_in_place_of_run_json_is_one_line(folder):
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    told = called("status", folder.name)
    assert "run.json cannot be read: this is not a regular file" in told.stderr
