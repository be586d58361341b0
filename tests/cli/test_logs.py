"""ddpmon logs: what the ranks printed, folded, of one rank, and as it comes."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from ddpmon import runs
from tests.conftest import ddpmon_program
from tests.runs.test_logs import write


@pytest.fixture
def printed(made):
    run = made()
    for rank in range(4):
        write(run, rank, f"loading\nrank {rank} is ready\n\x1b[32mdone\x1b[0m\n")
    write(run, 2, "careful\n", "stderr")
    return run


def test_identical_lines_are_one_and_stderr_is_marked(cli, printed):
    told = cli("logs")
    assert told.returncode == 0
    lines = [line.split(maxsplit=1) for line in told.stdout.splitlines()]
    assert ["all", "loading"] in lines
    assert ["3", "rank 3 is ready"] in lines
    assert ["all", "done"] in lines
    assert ["2", "! careful"] in lines
    assert "\x1b" not in told.stdout


def test_one_rank_alone_has_no_name_before_its_lines(cli, printed):
    told = cli("logs", printed.id, "--rank", "1")
    assert [line.strip() for line in told.stdout.splitlines()] == ["loading", "rank 1 is ready", "done"]


def test_a_rank_that_is_not_there_is_one_line(cli, printed):
    told = cli("logs", "--rank", "4")
    assert told.returncode == 2
    assert told.stderr.startswith("ddpmon: --rank 4: the run mnist")


def test_a_run_that_printed_nothing_prints_nothing(cli, made):
    made()
    assert cli("logs").stdout == ""


def test_following_ends_with_the_run_and_misses_nothing(made, living):
    run = made(ended_at=None, exit_code=None, supervisor=living)
    write(run, 0, "first\n")
    with subprocess.Popen([ddpmon_program(), "logs", "-f"], stdout=subprocess.PIPE, text=True) as following:
        assert "first" in following.stdout.readline()
        write(run, 0, "second\n")
        assert "second" in following.stdout.readline()
        write(run, 0, "last words\n")
        runs.save(dataclasses.replace(run, ended_at=1.0, exit_code=0))
        rest, _ = following.communicate(timeout=30)
    assert following.returncode == 0
    assert "last words" in rest
