"""Deleting a run: all of it or nothing, and never one of which something lives."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import removal


@pytest.fixture
def run(home):
    made = runs.Run(
        id="20260101-000001-0001", name="mnist", argv=["torchrun"], script="mnist.py", script_args=[], cwd="/",
        host=platform.node(), boot_id=runs.boot_id(), created_at=1.0, world_size=4, ended_at=2.0, exit_code=0,
    )  # fmt: skip
    folder = runs.create(made)
    (folder / "telemetry.db").write_bytes(b"x" * 300_000)
    (folder / "logs" / "hub.log").write_text("words")
    runs.make_socket_dir(made.id)
    return made


@pytest.fixture
def living(home):
    """A process that lives, to stand for a supervisor."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        yield runs.Process.of(sleeper.pid)
        sleeper.kill()


def changed(run, **changes):
    return runs.update(run.id, **changes)


def test_all_of_it_goes_its_sockets_too(run):
    told = (runs.run_dir(run.id) / "run.json").stat().st_size
    assert removal.folder_bytes(runs.run_dir(run.id)) == 300_000 + len("words") + told
    assert removal.size_text(run) == f"{(300_005 + told) / 1000:.0f} kB"
    removal.delete_run(run)
    assert list(runs.runs_dir().iterdir()) == []
    assert not runs.socket_dir(run.id).exists()


def test_what_is_just_ending_is_refused(run, living):
    """run.json says that it ended, but its hub may still be writing the report."""
    with pytest.raises(UsageError, match="is ending"):
        removal.delete_run(changed(run, supervisor=living))


def test_a_run_is_judged_by_what_it_is_now_not_by_what_was_shown(run, living):
    changed(run, ended_at=None, exit_code=None, supervisor=living)
    with pytest.raises(UsageError, match="is running"):
        removal.delete_run(run)


def test_a_lost_run_of_which_a_process_lives_is_refused(run):
    lost = changed(run, ended_at=None, exit_code=None, supervisor=runs.Process(2**22 + 1, 1))
    program = "import sys; sys.stdout.write('up'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "DDPMON_RUN_ID": run.id},
    ) as left:  # fmt: skip
        left.stdout.read(2)
        with pytest.raises(UsageError, match="still has 1 process; ddpmon stop"):
            removal.delete_run(lost)
        left.stdin.close()
    removal.delete_run(lost)
    assert runs.all_ids() == []


def test_a_run_that_may_still_run_on_another_machine_is_left_to_that_one(run):
    elsewhere = changed(run, ended_at=None, exit_code=None, host="node07", boot_id="another")
    with pytest.raises(
        UsageError, match="node07, and ddpmon cannot see it from here; delete the run there, or use ddpmon rm --f"
    ):
        removal.delete_run(elsewhere)
    assert runs.load(run.id) == elsewhere
    removal.delete_run(elsewhere, force=True)
    assert runs.all_ids() == []


def test_what_is_known_to_run_on_another_machine_is_not_deleted_by_force_either(run):
    elsewhere = changed(run, ended_at=None, exit_code=None, host="node07", boot_id="another")
    lock = runs.hold(run.id)
    try:
        with pytest.raises(UsageError, match="runs on node07; stop it there first"):
            removal.delete_run(elsewhere, force=True)
    finally:
        os.close(lock)
    assert runs.load(run.id) == elsewhere


def test_where_it_cannot_be_moved_away_nothing_is_deleted(run, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.rename", refuse)
    with pytest.raises(DdpmonError, match="cannot be deleted: Permission denied"):
        removal.delete_run(run)
    assert removal.folder_bytes(runs.run_dir(run.id)) >= 300_000
    assert runs.load(run.id) == run


def test_what_the_disk_keeps_is_no_run_any_more_is_told_and_goes_with_the_next(run, monkeypatch):
    other = runs.create(dataclasses.replace(run, id="20260101-000002-0002"))

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refuse)
        patch.setattr(runs, "remove_sockets", lambda _: None)
        with pytest.raises(DdpmonError, match="the run is deleted, except for some files in"):
            removal.delete_run(run)
    assert [each.id for each in runs.all_runs()] == [other.name]
    assert (runs.runs_dir() / f".deleted-{run.id}" / "telemetry.db").exists()
    removal.delete_run(runs.load(other.name))
    assert list(runs.runs_dir().iterdir()) == []
