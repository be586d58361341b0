"""ddpmon status and attach --once: how a run stands, in words, as JSON and as an exit code."""

from __future__ import annotations

import json

import pytest

from ddpmon import runs
from ddpmon.cli.commands import checking
from ddpmon.source import attaching
from ddpmon.tui.head import head_text
from ddpmon.tui.widgets.ranktable import table_text
from tests.conftest import wait_for
from tests.tui import snapshots

CODES = dict.fromkeys(("running", "waiting", "done", "stopped"), 0)
CODES |= {"slow": 1, "stalled": 1, "unknown": 1, "failed": 2, "lost": 2}


@pytest.mark.parametrize(("state", "code"), CODES.items())
def test_the_exit_code_says_how_it_stands(made, state, code):
    assert checking.exit_code(made(), snapshots.STATES[state]()) == code


def test_a_hub_that_does_not_answer_needs_a_look(made, living, cli, monkeypatch):
    run = made(ended_at=None, exit_code=None, supervisor=living)
    monkeypatch.setattr(attaching, "FIRST_ANSWER_S", 0.1)
    assert checking.exit_code(run, attaching.snapshot_now(run)) == 1


def test_a_run_that_ended_is_told_from_its_recording(cli, made):
    made(exit_code=3)
    told = cli("status")
    assert told.returncode == 2
    first, second = told.stdout.splitlines()
    assert first.startswith("✖ FAILED")
    assert "mnist" in first
    assert second
    told = cli("status", "--json")
    assert told.returncode == 2
    facts = json.loads(told.stdout)
    assert (facts["name"], facts["state"], facts["exit_code"], facts["step"]) == ("mnist", "failed", 2, 0)


def test_a_live_run_answers_in_two_lines_and_once_with_its_ranks(launch, cli):
    launch("sleep", "600")
    told = wait_for(lambda: (answer := cli("status")).returncode == 0 and answer)
    assert told.stdout.startswith("◌ WAITING")
    assert len(told.stdout.splitlines()) == 2
    assert json.loads(cli("status", "--json").stdout)["state"] == "waiting"
    assert "waiting" in cli("ls").stdout
    listed, *_ = json.loads(cli("ls", "--json").stdout)
    assert (listed["state"], listed["live_state"]) == ("running", "waiting")
    assert cli("attach", "--once").stdout.startswith("◌ WAITING")
    assert runs.find(None).state() == "running"


def test_a_lost_run_without_a_recording_is_gone(cli, made):
    made(ended_at=None, exit_code=None, supervisor=runs.Process(2**22 + 1, 1))
    told = cli("status")
    assert told.returncode == 2
    assert told.stdout.startswith("✖ LOST")
    assert "somebody killed the run's supervisor before the end" in told.stdout
    assert "Traceback" not in told.stderr


def test_the_text_fits_names_the_slow_rank_and_holds_no_escape_sequence():
    evil = snapshots.replace(snapshots.slow(), verdict="\x1b[2Jrank 13 is slow")
    for width in (60, 80, 160):
        lines = [*head_text(evil, width), *table_text(evil, width)]
        assert max(map(len, lines)) <= width
        assert "\x1b" not in "".join(lines)
        assert lines[0].startswith("▲ SLOW")
        assert lines[4].split()[:2] == ["▲", "13"]
        assert len(lines) == 3 + 1 + 64
