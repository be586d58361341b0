"""Test that each mistake of a user gives one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from ddpmon import runs
from tests.conftest import ddpmon_program


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print('trained')\n")
    return str(path)


def refused(result, code=2) -> str:
    """The one line that was said."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("ddpmon: ")
    assert "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("command", [["exec", "--headless", "--", "true"], ["run", "--headless", "-m", "json.tool"]])
def test_a_folder_that_is_gone(cli, tmp_path, monkeypatch, command):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the current folder no longer exists" in refused(cli(*command))


def test_a_script_that_is_not_python(cli, tmp_path):
    (tmp_path / "train.sh").write_text("#!/bin/bash\nset -e\nfor i in 1 2; do echo $i; done\n")
    assert "train.sh is not Python: line 3" in refused(cli("run", str(tmp_path / "train.sh")))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "SCRIPT"),
        (["run", "nothing.py"], "no script nothing.py"),
        (["run", "FOLDER"], "is a folder"),
        (["run", "-m", "no.such.module"], "no module no.such.module"),
        (["run", "--no-such-option", "train.py"], "--no-such-option"),
        *((["run", "--nproc", number, "SCRIPT"], "--nproc") for number in ("0", "-2", "four", "1.5", "99999", "")),
        *((["run", f"--name={name}", "SCRIPT"], "--name") for name in ("a b", "../../etc", "-", "")),
        (["run", "--grace", "soon", "train.py"], "--grace"),
        (["run", "--grace", "nan", "train.py"], "--grace"),
        (["run", "--max-restarts", "-1", "train.py"], "--max-restarts"),
        (["run", "--nnodes", "2", "SCRIPT"], ""),
        (["run", "--nnodes", "2", "--node-rank", "5", "--rdzv-endpoint", "h:1", "SCRIPT"], ""),
        (["run", "--hub", "node0:1", "SCRIPT"], ""),
        (["exec", "--hub", "node0", "--", "true"], ""),
        (["exec", "--hub", "node0:1", "--", "true"], ""),
        (["exec", "--hub-key", "key", "--", "true"], ""),
        (["exec"], ""),
        (["exec", "--", "no-such-program-anywhere"], "no-such-program-anywhere"),
        (["report", "--format", "pdf"], "--format"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_bad_command_line(cli, script, tmp_path, arguments, said):
    places = {"SCRIPT": script, "FOLDER": str(tmp_path)}
    assert said in refused(cli(*[places.get(word, word) for word in arguments]))


def test_a_word_where_a_number_is_needed_is_called_no_number(cli):
    assert "'abc' is not a valid whole number" in refused(cli("attach", "--pid", "abc"))
    assert "'abc' is not a valid number" in refused(cli("attach", "--every", "abc"))


@pytest.mark.parametrize(
    "command",
    [
        *("attach", "bundle", "detach", "diff", "logs", "profile", "publish", "report", "rm", "snapshot", "stack"),
        *("status", "stop"),
    ],
)
def test_each_command_answers_an_unknown_run_alike(cli, command):
    assert "no run 'nothing'; ddpmon ls lists all runs" in refused(cli(command, "nothing"))


@pytest.mark.parametrize("command", ["attach", "stop", "report"])
@pytest.mark.parametrize("wanted", ["../..", "", "\x1b[31m"])
def test_an_unknown_run(cli, command, wanted):
    assert "no run" in refused(cli(command, wanted))


@pytest.mark.parametrize("command", ["attach", "report"])
def test_no_run_at_all_names_the_folder_that_was_looked_in(cli, command, home, monkeypatch):
    monkeypatch.setenv("DDPMON_HOME", str(home / "typo"))
    said = f"no runs yet in {home / 'typo'}; ddpmon run"
    assert said in refused(cli(command))
    assert "none of your runs is running" in refused(cli("stop"))
    assert cli("ls").stdout.startswith(said)


def test_the_beginning_of_more_than_one_id(cli, made):
    made(id="20260101-000000-aaaa")
    made(id="20260101-000000-aabb")
    assert "2 run ids begin with" in refused(cli("stop", "20260101"))
    assert cli("stop", "20260101-000000-aab").returncode == 0


def test_of_several_runs_with_one_name_the_latest_is_taken_and_it_says_so(cli, made):
    first, latest = (made(id=f"20260101-00000{number}-aaaa", name="twice", created_at=number) for number in (1, 2))
    said = cli("report", "twice")
    assert (said.returncode, said.stdout.splitlines()[0]) == (0, f"twice ({latest.id}): done, exit code 0, 4 ranks")
    assert said.stderr == (
        f"ddpmon: 2 runs have the name twice; this is the latest, {latest.id}; ddpmon ls shows the ids of the others\n"
    )
    assert cli("report", first.id).stderr == ""


def test_a_damaged_run_is_named_and_does_not_hide_the_others(cli, made):
    made(id="20260101-000000-aaaa")
    broken = runs.run_dir(made(id="20260101-000000-bbbb").id) / "run.json"
    for content in ("", "{", "[]", '{"id": 1}', "null"):
        broken.write_text(content)
        listed = cli("ls")
        assert listed.returncode == 0, listed.stderr
        assert "aaaa" in listed.stdout
        assert "bbbb" not in listed.stdout


def test_a_folder_for_sockets_that_is_not_ours_or_too_long(cli, script, home, monkeypatch):
    open_to_all = home / "open"
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(open_to_all))
    assert "other users can enter" in refused(cli("run", script), 1)
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(home / ("x" * 100)))
    assert "this path is too long for a socket" in refused(cli("run", script), 1)
    assert cli("ls").stdout.startswith("no runs yet")


def test_a_home_that_cannot_be_written(cli, script, home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("DDPMON_HOME", str(home / "file" / "home"))
    assert "cannot make" in refused(cli("run", script), 1)


def test_a_log_that_only_takes_ascii_is_no_error(made):
    made(script="träning.py")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "HOME": socket.gethostname()}
    command = [ddpmon_program(), "ls"]
    listed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert listed.returncode == 0
    assert "tr?ning.py" in listed.stdout
