"""A live run, looked at from another container: nothing that is said of it is untrue, and nothing harms it."""

from __future__ import annotations

import json
import subprocess

import pytest

from ddpmon import runs
from tests.conftest import ddpmon_program, wait_for


@pytest.fixture
def away(other_namespace, home):
    """A command line of ddpmon in another pid namespace."""

    def call(*args: str):
        return subprocess.run(
            [*other_namespace, ddpmon_program(), *args],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return call


@pytest.fixture
def live(launch, tmp_path):
    """A run whose command ends well once it is let go."""
    started = launch("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    wait_for(lambda: started.run.agent)
    wait_for((runs.socket_dir(started.id) / "view.sock").exists)
    return started


def test_a_run_in_another_container_is_neither_stopped_nor_deleted_and_ends_as_if_nobody_had_tried(
    live, away, tmp_path
):
    listed, *_ = json.loads(away("ls", "--json").stdout)
    assert (listed["state"], listed["elsewhere"]) == ("running", "runs in another container of this machine")
    assert away("ls").stdout.splitlines()[-1] == f"{live.id} runs in another container of this machine"
    for stop in (("stop",), ("stop", live.id, "--now")):
        told = away(*stop)
        assert (told.returncode, told.stdout) == (1, "")
        assert told.stderr == (
            f"ddpmon: test ({live.id}) runs in another container of this machine; stop the run there with "
            f"ddpmon stop {live.id}\n"
        )
    for remove in (("rm", live.id, "--yes"), ("rm", live.id, "--yes", "--force")):
        told = away(*remove)
        assert told.returncode == 2
        assert "runs in another container of this machine; stop it there first" in told.stderr
    assert away("status", live.id).returncode == 0, "its hub answers: the folder of sockets is shared"
    (tmp_path / "go").touch()
    assert live.until_gone().state() == "done"
    assert json.loads(away("ls", "--json").stdout)[0]["state"] == "done"


def test_a_run_whose_hub_cannot_be_reached_from_here_is_told_where_it_runs(live, away, monkeypatch, home):
    (home / "t").mkdir(mode=0o700)
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(home / "t"))
    told = away("status", live.id)
    assert told.returncode == 1
    assert told.stdout.splitlines() == [
        f"? test ({live.id}) runs in another container of this machine",
        f"run ddpmon status {live.id} there",
    ]
    told = away("attach", live.id)
    assert told.returncode == 1
    assert told.stderr.splitlines() == [
        f"ddpmon: test ({live.id}) runs in another container of this machine; ddpmon attach {live.id} shows it there"
    ]
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(home / "s"))


def test_what_is_left_of_a_killed_run_in_another_container_is_not_said_to_be_gone(live, away):
    import os
    import signal

    os.kill(live.run.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not live.run.supervised())
    told = away("stop", live.id)
    assert (told.returncode, told.stdout) == (1, "")
    assert "started in another container of this machine, and its supervisor is gone; stop the run there" in told.stderr
    assert "use ddpmon rm --force if the run has certainly ended" in away("rm", live.id, "--yes").stderr
    assert live.run.agent.alive()
    assert (live.folder / "run.json").exists()
