"""Folders of recordings and sockets, and the network."""

from __future__ import annotations

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ddpmon import runs
from ddpmon.doctor import network, places
from ddpmon.doctor.check import Level


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A home and a folder for sockets that are not there yet."""
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(tmp_path / "s"))
    return tmp_path


def test_folders_are_made_as_a_first_run_makes_them_and_nothing_is_left_in_them(folders):
    [check] = places.recordings()
    assert check.level is Level.OK
    assert "free" in check.text
    assert places.sockets().level is Level.OK
    for folder in (runs.home(), runs.runs_dir(), folders / "s"):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(runs.runs_dir().iterdir())
    assert not list((folders / "s").iterdir())


def test_a_folder_that_others_can_enter_is_a_problem_that_says_so(folders):
    for folder in (runs.home(), folders / "s"):
        folder.mkdir(mode=0o755)
    [check] = places.recordings()
    assert check.level is Level.PROBLEM
    assert "other users can enter" in check.text
    assert places.sockets().level is Level.PROBLEM


def test_a_path_too_long_for_a_socket_is_a_problem(folders, monkeypatch):
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(folders / ("long" * 30)))
    check = places.sockets()
    assert check.level is Level.PROBLEM
    assert "too long for a socket, which may have 107 bytes" in check.text


def test_little_room_is_a_note_and_a_shared_folder_another(folders, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=10**9))
    monkeypatch.setattr(places, "is_local", lambda _path: False)
    room, shared = places.recordings()
    assert (room.level, shared.level) == (Level.NOTE, Level.NOTE)
    assert "1.0 GB free" in room.text
    assert "network file system" in shared.text


def test_a_folder_that_takes_no_database_is_a_problem(folders, small_disk, monkeypatch):
    disk = small_disk()
    monkeypatch.setenv("DDPMON_HOME", str(disk.path / "home"))
    runs.private_dir(runs.home())
    runs.private_dir(runs.runs_dir())
    disk.fill()
    [check] = places.recordings()
    assert check.level is Level.PROBLEM
    assert "SQLite cannot write to" in check.text


@pytest.mark.parametrize(
    ("chosen", "level"),
    [
        ("", None),
        ("lo", Level.OK),
        ("ib9", Level.PROBLEM),
        ("^docker0", Level.OK),
        ("=lo", Level.OK),
        ("lo:1", Level.OK),
    ],
)
def test_an_interface_that_is_not_there_is_a_problem(chosen, level):
    checks = list(network.interfaces({"NCCL_SOCKET_IFNAME": chosen}))
    named = [check for check in checks if check.about == "NCCL interface"]
    assert [check.level for check in named] == ([level] if level else [])
    assert checks[0].about == "network"


def test_names_that_do_not_resolve_are_a_note_with_the_lines_that_are_missing(no_names):
    assert network.names().about == "host names"
    asked = "from ddpmon.doctor import network; print(*vars(network.names()).values(), sep='|')"
    told = subprocess.run([*no_names, sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    own = socket.gethostname()
    about, level, text, way_out = told.stdout.split("|")
    assert (about, level) == ("host names", "note")
    assert f"localhost and {own} do not resolve" in text
    assert f"'127.0.0.1 localhost' and '127.0.1.1 {own}' to /etc/hosts" in way_out


def test_ssh_is_asked_for_its_version(tmp_path):
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho OpenSSH_9.9p1, OpenSSL 3 >&2\n")
    program.chmod(0o700)
    check = network.ssh({"DDPMON_SSH": f"{program} -F config", "SSH_AUTH_SOCK": "/agent"})
    assert (check.level, check.text) == (Level.OK, "OpenSSH_9.9p1; with an ssh agent for keys")
    assert network.ssh({"DDPMON_SSH": str(tmp_path / "none")}).level is Level.NOTE
    assert network.ssh({"DDPMON_SSH": "'"}).level is Level.PROBLEM
