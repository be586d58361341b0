"""ddpmon prune, and DDPMON_KEEP before a run begins."""

from __future__ import annotations

import sys
import time

import pytest

from ddpmon import runs
from tests.cli.test_bad_input import refused
from tests.in_process import called_in_a_terminal

DAY_S = 86_400


@pytest.fixture
def three(made):
    """Runs of 10 MB that ended 9, 5 and 1 days ago."""
    found = []
    for day in (9, 5, 1):
        found.append(made(ended_at=time.time() - day * DAY_S))
        with (runs.run_dir(found[-1].id) / "telemetry.db").open("wb") as file:
            file.truncate(10_000_000)
    return found


def left():
    return [run.id for run in runs.all_runs()]


def test_a_dry_run_names_what_would_go_and_deletes_nothing(cli, three):
    told = cli("prune", "--keep", "15MB", "--dry-run")
    assert told.returncode == 0
    first, second, total = told.stdout.splitlines()
    assert first == f"mnist ({three[0].id}), done, 10.0 MB, ended 9 days ago"
    assert second.startswith(f"mnist ({three[1].id})")
    assert total == "would delete 2 runs, 20.0 MB"
    assert len(left()) == 3


def test_it_deletes_when_told_so_and_takes_the_bound_from_the_environment(cli, three, monkeypatch):
    monkeypatch.setenv("DDPMON_KEEP", "6d")
    told = cli("prune", "--yes")
    assert (told.returncode, told.stdout.splitlines()[-1]) == (0, "deleted 1 run")
    assert left() == [three[1].id, three[2].id]
    assert cli("prune", "--yes").stdout == "nothing to delete: 2 runs take 20.0 MB, and the limit is 6d\n"


def test_without_a_terminal_it_deletes_nothing_unless_told_so(cli, three):
    assert "give --yes" in refused(cli("prune", "--keep", "15MB"))
    assert len(left()) == 3


@pytest.mark.parametrize(("answer", "count"), [(b"n", 3), (b"\r", 3), (b"y", 1)])
def test_it_asks(three, answer, count):
    code, written = called_in_a_terminal("prune", "--keep", "15MB", answer=answer + b"\r")
    assert code == 0
    assert "Delete 2 runs, 20.0 MB?" in written
    assert len(left()) == count


def test_it_wants_a_bound_that_is_one(cli, made):
    assert "set --keep or DDPMON_KEEP" in refused(cli("prune"))
    assert "--keep '50 runs'" in refused(cli("prune", "--keep", "50 runs"))


def test_a_run_makes_room_before_it_begins_and_says_so_in_one_line(cli, three, monkeypatch):
    monkeypatch.setenv("DDPMON_KEEP", "15MB")
    told = cli("exec", "--headless", "--", sys.executable, "-c", "print('here')")
    assert told.returncode == 0
    (line,) = [line for line in told.stderr.splitlines() if "DDPMON_KEEP" in line]
    assert line == (
        "ddpmon: deleting 2 runs, 20.0 MB, because the limit for all runs is 15MB (DDPMON_KEEP): "
        f"{three[0].id} to {three[1].id}"
    )
    assert left()[0] == three[2].id
    assert len(left()) == 2


def test_a_run_warns_before_the_bound_is_reached(cli, three, monkeypatch):
    monkeypatch.setenv("DDPMON_KEEP", "32MB")
    told = cli("exec", "--headless", "--", sys.executable, "-c", "")
    assert "all runs together take 30.0 MB of the limit of 32MB (DDPMON_KEEP)" in told.stderr
    assert len(left()) == 4


def test_a_bound_that_is_none_starts_nothing(cli, three, monkeypatch):
    monkeypatch.setenv("DDPMON_KEEP", "lots")
    assert "DDPMON_KEEP 'lots'" in refused(cli("exec", "--headless", "--", sys.executable, "-c", ""))
    assert len(left()) == 3


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        ("40MB", ""),
        ("32MB", "all runs together take 30.0 MB of the limit of 32MB"),
        ("15MB", "the next ddpmon run will delete 2 runs, 20.0 MB, the oldest first"),
    ],
)
def test_ls_tells_that_the_bound_is_near_or_passed(cli, three, monkeypatch, keep, told):
    monkeypatch.setenv("DDPMON_KEEP", keep)
    listed = cli("ls")
    assert listed.returncode == 0
    assert len(listed.stdout.partition("\n\n")[0].splitlines()) == 4, "jobs without ddpmon stand below"
    assert told in listed.stderr
    assert bool(listed.stderr) == bool(told)
    assert cli("ls", "--json").stderr == ""
