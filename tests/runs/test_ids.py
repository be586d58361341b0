"""Ids of runs that start in the same second."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.errors import UnsafePathError, UsageError
from ddpmon.runs import ids

AT_ONCE = """
import os, secrets, time
from ddpmon import runs
secrets.token_hex = lambda n, whole=secrets.token_hex: whole(n)[-2:] if n == 2 else whole(n)
gate, opened = os.pipe()
for number in range(40):
    if os.fork() == 0:
        os.close(opened)
        os.read(gate, 1)
        runs.create(runs.Run(
            id=runs.new_id(), name=f"run-{number}", argv=["true"], script="a.py", script_args=[], cwd="/", host="here",
            boot_id="", created_at=time.time(), world_size=1,
        ))
        os._exit(0)
os.close(opened)
assert all(os.wait()[1] == 0 for _ in range(40))
"""
"""Forty processes that make a run each once all are there; which of 256 endings its id has is left to chance."""


def test_forty_processes_that_start_at_one_moment_make_forty_runs(home):
    subprocess.run([sys.executable, "-c", AT_ONCE], check=True, timeout=120)
    found = runs.all_runs()
    assert {run.name for run in found} == {f"run-{number}" for number in range(40)}
    assert len({run.id for run in found}) == 40
    assert all(runs.socket_dir(run.id).is_dir() for run in found)


def test_an_id_whose_sockets_another_home_uses_is_not_given_out(home, monkeypatch):
    endings = iter(map(bytes.fromhex, ["aaaa", "aaaa", "bbbb"]))
    monkeypatch.setattr(ids.time, "strftime", lambda _: "20260101-000000-")
    monkeypatch.setattr(ids.os, "urandom", lambda _: next(endings))
    first = runs.new_id()
    monkeypatch.setenv("DDPMON_HOME", str(home / "second"))
    assert (first, runs.new_id()) == ("20260101-000000-aaaa", "20260101-000000-bbbb")
    assert [entry.name for entry in runs.runs_dir().iterdir()] == ["20260101-000000-bbbb"]


def test_its_folders_are_its_users_alone_and_go_if_no_run_comes_of_it(home):
    with runs.reserved() as run_id:
        for folder in (runs.run_dir(run_id), runs.socket_dir(run_id)):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def refuse():
        with runs.reserved() as wanted:
            raise UsageError(wanted)

    with pytest.raises(UsageError) as caught:
        refuse()
    run_id = str(caught.value)
    assert not runs.run_dir(run_id).exists()
    assert not runs.socket_dir(run_id).exists()


def test_a_launch_that_is_refused_leaves_no_folder(cli, tmp_path):
    (tmp_path / "broken.py").write_text("def")
    assert cli("run", str(tmp_path / "broken.py")).returncode == 2
    assert not runs.home().exists()


def test_a_run_is_never_written_over_another(run):
    with pytest.raises(UsageError, match="a run 20260101-000001-0001 already exists"):
        runs.create(run)
    assert sorted(entry.name for entry in runs.run_dir(run.id).iterdir()) == ["logs", "run.json"]


def test_a_refused_start_leaves_no_folder_that_was_not_there(home, monkeypatch, cli):
    monkeypatch.setenv("DDPMON_HOME", str(home / "new" / "home"))
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(home / "new" / "sockets"))
    assert cli("exec", "--", "true", env={**os.environ, "DDPMON_KEEP": "much"}).returncode == 2
    assert not (home / "new").exists()


def test_a_home_may_be_reached_through_links_of_this_user(home, monkeypatch):
    (home / "scratch").mkdir(mode=0o700)
    (home / "once").symlink_to("scratch/runs-of-mine")  # made on first use
    (home / "twice").symlink_to("once")
    monkeypatch.setenv("DDPMON_HOME", str(home / "twice"))
    run_id = runs.new_id()
    assert (home / "scratch" / "runs-of-mine" / "runs" / run_id).is_dir()


def test_a_link_that_somebody_else_made_is_refused(home, monkeypatch):
    link = home / "trap"
    (home / "mine").mkdir(mode=0o700)
    link.symlink_to("mine")
    if os.getuid() == 0:
        os.chown(link, 12345, -1, follow_symlinks=False)
    else:
        mine = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    monkeypatch.setenv("DDPMON_HOME", str(link))
    with pytest.raises(UnsafePathError, match="of another user; remove it, or set DDPMON_HOME to another folder"):
        runs.new_id()


@pytest.mark.parametrize("variable", ["DDPMON_HOME", "DDPMON_RUNTIME_DIR"])
def test_the_error_names_the_variable_that_puts_the_folder_elsewhere(home, monkeypatch, variable):
    (home / "open").mkdir(mode=0o755)
    monkeypatch.setenv(variable, str(home / "open"))
    with pytest.raises(UnsafePathError, match=rf"; run chmod 700 on it, or set {variable} to another folder"):
        runs.new_id()


def test_where_no_folder_can_be_made_it_is_one_line(home, monkeypatch):
    monkeypatch.setenv("DDPMON_HOME", "/proc/none")
    with pytest.raises(UnsafePathError, match="cannot make /proc/none"):
        runs.new_id()
