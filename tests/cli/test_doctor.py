"""ddpmon doctor."""

from __future__ import annotations

import json

import pytest

import ddpmon.doctor
from ddpmon.doctor.check import note, ok, problem
from tests.in_process import called


@pytest.fixture
def checks(monkeypatch):
    """Give the doctor made-up checks instead of those of this machine."""

    def call(*found: object) -> None:
        monkeypatch.setattr(ddpmon.doctor, "examine", lambda _environ, _ranks: iter(found))

    return call


def test_a_line_each_with_the_way_out_below_and_the_sum_at_the_end(checks):
    sockets = problem("sockets", "no\x1b[31m room", "x")
    checks(ok("Python", "3.11"), note("cores", "2 for 4 ranks", "--nproc 2"), sockets)
    answer = called("doctor")
    assert answer.returncode == 1
    assert answer.stdout.splitlines() == [
        "✔ Python         3.11",
        "● cores          2 for 4 ranks",
        "                 --nproc 2",
        "✖ sockets        no room",
        "                 x",
        "",
        "1 problem, 1 note",
    ]


def test_notes_alone_are_no_failure(checks):
    checks(note("cores", "2 for 4 ranks"))
    answer = called("doctor")
    assert (answer.returncode, answer.stdout.splitlines()[-1]) == (0, "1 note")
    checks(ok("Python", "3.11"))
    assert called("doctor").stdout.splitlines()[-1] == "no problem"


def test_json_is_a_list_of_what_was_looked_at(checks):
    checks(problem("sockets", "no room", "x"))
    answer = called("doctor", "--json")
    assert answer.returncode == 1
    assert json.loads(answer.stdout) == [{"about": "sockets", "level": "problem", "text": "no room", "way_out": "x"}]


@pytest.mark.parametrize("ranks", ["0", "many", "5000"])
def test_an_impossible_number_of_ranks_is_one_line(ranks):
    answer = called("doctor", "--nproc", ranks)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1


def test_this_machine_is_examined_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(tmp_path / "s"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)  # tests/doctor asks the real torch
    checks = json.loads(called("doctor", "--nproc", "1", "--json").stdout)
    about = {check["about"] for check in checks}
    assert {"Python", "torch", "GPUs", "cores", "recordings", "sockets", "network", "ssh", "terminal"} <= about
    assert all(check["text"] for check in checks)
