"""ddpmon ls: every run with how it stands, for people and for programs."""

from __future__ import annotations

import json
import platform
import time

import pytest

from ddpmon.runs import Process

HOST = platform.node()
GONE = Process(2**22 + 1, 1)
"""A pid that no Linux hands out."""


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "done"),
        ({"exit_code": 3}, "failed"),
        ({"exit_code": 127, "error": "cannot start it"}, "failed"),
        ({"exit_code": 1, "stopping": True}, "stopped"),
        ({"ended_at": None, "exit_code": None, "supervisor": GONE}, "lost"),
        ({"ended_at": None, "exit_code": None, "supervisor": "alive"}, "running"),
        ({"ended_at": None, "exit_code": None, "supervisor": "alive", "boot_id": "another"}, "unknown"),
        ({"ended_at": None, "exit_code": None, "supervisor": GONE, "boot_id": "another", "host": HOST}, "lost"),
        ({"ended_at": None, "exit_code": None, "created_at": "now"}, "running"),
    ],
)
def test_the_state_of_a_run(cli, made, living, changes, state):
    if changes.get("supervisor") == "alive":
        changes = {**changes, "supervisor": living}
    if changes.get("created_at") == "now":  # its supervisor has not signed yet
        changes = {**changes, "created_at": time.time()}
    run = made(**changes)
    told, *_ = json.loads(cli("ls", "--json").stdout)
    assert (told["id"], told["state"]) == (run.id, state)
    assert state in cli("ls").stdout.splitlines()[1]


def test_no_line_ends_in_blanks(cli, made):
    made(script="x" * 59, script_args=["cut off after the blank"])
    assert [line for line in cli("ls").stdout.splitlines() if line != line.rstrip()] == []


def test_a_recycled_pid_is_not_taken_for_the_supervisor(cli, made, living):
    made(ended_at=None, supervisor=Process(living.pid, living.start_ticks - 1))
    assert json.loads(cli("ls", "--json").stdout)[0]["state"] == "lost"


def test_a_run_that_is_being_stopped_says_so(cli, made, living):
    made(ended_at=None, supervisor=living, stopping=True)
    assert "stopping" in cli("ls").stdout
    told, *_ = json.loads(cli("ls", "--json").stdout)
    assert (told["state"], told["stopping"]) == ("running", True)


def test_the_latest_run_comes_first_under_a_head_line(cli, made):
    made(name="first")
    made(name="second", world_size=0)
    head, second, first, *_ = cli("ls").stdout.splitlines()  # others may train here without ddpmon
    assert head.split() == ["ID", "NAME", "STATE", "RANKS", "STARTED", "TOOK", "COMMAND"]
    assert second.split()[1:4] == ["second", "done", "?"]
    assert first.split()[1:4] == ["first", "done", "4"]
    assert first.endswith("mnist.py --lr 0.1")


def test_no_runs_are_an_empty_list_for_programs_and_a_way_to_start_for_people(cli):
    assert all(row["pid"] for row in json.loads(cli("ls", "--json").stdout)), "others may train here without ddpmon"
    assert "ddpmon run" in cli("ls").stdout
