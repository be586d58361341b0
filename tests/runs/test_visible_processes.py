"""Test what can be known about a run from here: by its pids, by its lock, or not at all."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from types import SimpleNamespace

import pytest

from ddpmon import runs
from ddpmon.runs.visible_processes import PidSpace, Sight, is_local

ELSEWHERE = {"host": "node07", "boot_id": "another"}
CONTAINER = {"pid_namespace": "pid:[1]"}
RESTARTED = {"boot_id": "another"}


def changed(run, **changes):
    return runs.update(run.id, **changes)


def test_how_long_a_run_took_does_not_depend_on_a_clock_that_was_set_meanwhile(run):
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME) - 5
    run = dataclasses.replace(run, created_at=time.time() + 86_400, created_boot_s=began_s)
    assert 5 <= run.unix_now() - run.created_at < 3600
    assert dataclasses.replace(run, ended_at=run.created_at - 86_357.6).took_s is None, "an older ddpmon wrote it"


def test_this_process_sees_pids_of_its_own_place_alone():
    here = runs.here()
    assert here.sight() is Sight.PIDS
    assert PidSpace(here.host, here.boot_id).sight() is Sight.PIDS, "older runs do not tell their namespace"
    assert PidSpace("renamed", here.boot_id, here.pid_namespace).sight() is Sight.PIDS, "a host may be renamed"
    assert dataclasses.replace(here, pid_namespace="pid:[1]").sight() is Sight.KERNEL
    assert dataclasses.replace(here, boot_id="another").sight() is Sight.NONE
    assert PidSpace("node07", "another").sight() is Sight.NONE


@pytest.mark.parametrize(
    ("changes", "free", "held"),
    [
        ({}, ("lost", None), ("running", None)),
        (
            CONTAINER,
            ("lost", "started in another container of this machine, and its supervisor is gone"),
            ("running", "runs in another container of this machine"),
        ),
        (
            ELSEWHERE,
            ("unknown", "started on node07, and ddpmon cannot see it from here"),
            ("running", "runs on node07"),
        ),
        (RESTARTED, ("lost", None), ("running", f"runs on {platform.node()}")),
    ],
)
def test_a_run_lives_as_long_as_its_supervisor_holds_the_lock(run, changes, free, held):
    run = changed(run, **changes)
    lock = runs.hold(run.id)
    assert (run.state(), run.elsewhere()) == held
    assert run.supervised()
    os.close(lock)
    assert (run.state(), run.elsewhere()) == free
    assert not run.supervised()


def test_of_a_container_whose_supervisor_never_held_the_lock_nothing_is_known(run):
    run = changed(run, **CONTAINER)
    assert run.state() == "unknown"
    assert run.elsewhere() == "started in another container of this machine, and ddpmon cannot see it from here"


def test_a_machine_of_the_same_name_that_shares_the_home_is_not_taken_for_this_one_restarted(run, monkeypatch):
    run = changed(run, **RESTARTED)
    assert run.state() == "lost"
    monkeypatch.setattr("ddpmon.runs.run.is_local", lambda _: False)
    assert run.state() == "unknown"
    assert "before the last boot of this machine" in (run.elsewhere() or "")


@pytest.mark.parametrize("changes", [{}, CONTAINER, ELSEWHERE, RESTARTED])
def test_a_run_that_ended_is_known_everywhere(run, changes):
    run = changed(run, **changes, ended_at=2.0, exit_code=0)
    assert (run.state(), run.elsewhere()) == ("done", None)


def test_a_pid_that_is_somebody_elses_here_proves_nothing_of_another_container(run):
    myself = runs.Process.of(os.getpid())
    assert changed(run, supervisor=myself).state() == "running"
    assert changed(run, supervisor=myself, **CONTAINER).state() == "unknown"


MOUNTS = """\
/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
tmpfs /home/scratch tmpfs rw 0 0
sshfs#x /data fuse.sshfs rw 0 0
10.0.0.1@tcp:/lus /lustre/a\\040b lustre rw,flock 0 0
autofs /proj autofs rw 0 0
server:/proj /proj nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/var/x", True), ("/home/me/.local", False), ("/home/scratch/me", True), ("/homes", True), ("/data/x", False),
        ("/lustre/a b/me", False), ("/proj/me", False),
    ],
)  # fmt: skip
def test_a_file_system_that_other_machines_may_write_to_is_told_apart(tmp_path, path, local):
    (tmp_path / "mounts").write_text(MOUNTS)
    assert is_local(path, tmp_path / "mounts") is local


def test_without_a_list_of_mounts_nothing_counts_as_local(tmp_path):
    assert not is_local(tmp_path, tmp_path / "none")


def test_in_a_chroot_which_does_not_see_its_own_mount_a_disk_is_local(tmp_path, monkeypatch):
    (tmp_path / "mounts").write_text("proc /proc proc rw 0 0\n")
    for device, local in ((os.makedev(254, 1), True), (os.makedev(0, 27), False)):
        monkeypatch.setattr(os, "stat", lambda _, device=device: SimpleNamespace(st_dev=device))
        assert is_local(tmp_path, tmp_path / "mounts") is local
    monkeypatch.undo()
    assert not is_local(tmp_path / "nothing there", tmp_path / "mounts")
