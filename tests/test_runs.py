"""run.json with more than one writer, and other names for runs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading

import pytest

from ddpmon import runs
from ddpmon.errors import DdpmonError, RunNotFoundError
from ddpmon.runs import changing
from tests.conftest import wait_for


@pytest.fixture
def run(home):
    made = runs.Run(
        id="20260101-000001-0001", name="mnist", argv=["torchrun"], script="mnist.py", script_args=[], cwd="/",
        host="here", boot_id=runs.boot_id(), created_at=1.0, world_size=4, ended_at=2.0, exit_code=0,
    )  # fmt: skip
    runs.create(made)
    return made


def test_a_disk_that_takes_nothing_is_one_line(run, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(changing, "save", full)
    with pytest.raises(DdpmonError, match="cannot be renamed: No space left on device"):
        runs.rename(run, "later")


def test_two_writers_do_not_undo_each_other(run):
    """The supervisor ends a run while somebody renames it, many times over."""

    def write(field, values):
        for value in values:
            runs.update(run.id, **{field: value})

    names = [f"name-{number}" for number in range(100)]
    threads = [
        threading.Thread(target=write, args=("name", names)),
        threading.Thread(target=write, args=("exit_code", range(100))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = runs.load(run.id)
    assert (now.name, now.exit_code) == ("name-99", 99)


def test_a_writer_that_hangs_does_not_hold_up_the_others_for_ever(run, monkeypatch):
    monkeypatch.setattr(changing, "LOCK_S", 0.05)
    held = os.open(runs.run_dir(run.id) / "run.json.lock", os.O_WRONLY | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert runs.update(run.id, exit_code=3).exit_code == 3
    os.close(held)


def test_a_running_run_keeps_the_name_it_was_given_when_its_supervisor_writes_how_it_ended(launch, tmp_path):
    started = launch("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 3")
    wait_for(lambda: started.run.agent)
    runs.rename(started.run, "another")
    (tmp_path / "go").touch()
    ended = started.until_gone()
    assert (ended.name, ended.exit_code, ended.state()) == ("another", 3, "failed")


def test_a_run_json_that_somebody_damaged_is_whole_again_at_the_end(launch, tmp_path):
    started = launch("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    wait_for(lambda: started.run.agent)
    (started.folder / "run.json").write_text("{")
    (tmp_path / "go").touch()

    def ended():
        try:
            return started.run.ended
        except RunNotFoundError:
            return False

    wait_for(ended)
    assert started.until_gone().state() == "done"


def test_what_is_being_deleted_is_no_run(run):
    folder = runs.run_dir(run.id)
    folder.rename(folder.with_name(f".deleted-{run.id}"))
    assert runs.all_ids() == []
    assert runs.all_runs() == []


def test_a_process_whose_name_is_no_text_is_seen(run):
    """The kernel takes any bytes for a process's name."""
    program = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as odd:
        odd.stdout.readline()
        assert runs.Process.of(odd.pid)
        odd.kill()


def test_a_state_folder_that_is_no_absolute_path_is_looked_for_from_here(monkeypatch, tmp_path):
    monkeypatch.delenv("DDPMON_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.chdir(tmp_path)
    assert runs.home() == tmp_path / "state" / "ddpmon"
