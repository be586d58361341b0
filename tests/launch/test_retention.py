"""A bound for the folder of all runs: the oldest that have ended go, and nothing that may still run."""

from __future__ import annotations

import dataclasses
import shutil
import time

import pytest

from ddpmon import runs
from ddpmon.errors import UsageError
from ddpmon.launch import removal
from tests.cli.conftest import living, made

__all__ = ["living", "made"]  # fixtures
DAY_S = 86_400
MEGABYTE = 10**6


def of_size(run, megabytes):
    path = runs.run_dir(run.id) / "telemetry.db"
    with path.open("wb") as file:
        file.truncate(round(megabytes * MEGABYTE))
    return run


@pytest.fixture
def runs_of_days(made):
    """Runs of 10 MB each that ended so many days ago."""

    def call(*days, **changes):
        return [of_size(made(ended_at=time.time() - day * DAY_S, **changes), 10) for day in days]

    return call


def going(text):
    return [stored.run.id for stored in removal.plan_pruning(removal.parse_limit(text, "--keep")).going]


@pytest.mark.parametrize(
    ("text", "size_bytes", "age_s"),
    [
        ("20GB", 20e9, float("inf")),
        ("1.5 tb", 1.5e12, float("inf")),
        ("500MB", 5e8, float("inf")),
        ("90d", float("inf"), 90 * DAY_S),
        ("36h", float("inf"), 1.5 * DAY_S),
        (" 2w ", float("inf"), 14 * DAY_S),
    ],
)
def test_a_bound_is_a_size_or_an_age(text, size_bytes, age_s):
    found = removal.parse_limit(text, "--keep")
    assert (found.size_bytes, found.age_s) == (size_bytes, age_s)


@pytest.mark.parametrize("text", ["", "20", "GB", "-1GB", "0d", "20 GiB", "20GB,90d", "50 runs", "nan GB", "1e3MB"])
def test_what_is_no_bound_is_refused_with_what_is_one(text):
    with pytest.raises(UsageError, match="a total size \\(20GB"):
        removal.parse_limit(text, "--keep")


def test_the_oldest_go_until_the_rest_fits(runs_of_days):
    newest, oldest, middle = runs_of_days(1, 9, 5)
    assert going("35MB") == []
    assert going("25MB") == [oldest.id]
    assert going("15MB") == [oldest.id, middle.id]
    assert going("1MB") == [oldest.id, middle.id, newest.id]


def test_by_age_go_those_that_ended_before(runs_of_days):
    _, old, older = runs_of_days(1, 5, 9)
    assert going("4d") == [older.id, old.id]
    assert going("2w") == []


def test_a_running_run_counts_but_never_goes(runs_of_days, made, living):
    ended = runs_of_days(1)[0]
    running = of_size(made(ended_at=None, exit_code=None, supervisor=living, created_at=time.time() - 90 * DAY_S), 50)
    assert going("55MB") == [ended.id]
    assert going("1MB") == [ended.id]
    assert going("1h") == [ended.id]
    assert runs.load(running.id).state() == "running"


def test_a_run_of_another_host_that_did_not_say_it_ended_never_goes(runs_of_days, made):
    ended = runs_of_days(1)[0]
    of_size(made(ended_at=None, exit_code=None, host="another", boot_id="another", created_at=1.0), 50)
    assert going("1MB") == [ended.id]


def test_a_run_whose_file_cannot_be_read_counts_but_never_goes(runs_of_days, made):
    ended = runs_of_days(1)[0]
    damaged = of_size(made(), 50)
    (runs.run_dir(damaged.id) / "run.json").write_text("{")
    plan = removal.plan_pruning(removal.parse_limit("55MB", "--keep"))
    assert [stored.run.id for stored in plan.going] == [ended.id]
    assert plan.size_bytes > 60 * MEGABYTE


def test_it_is_told_that_the_bound_comes_near(runs_of_days):
    runs_of_days(1, 5)
    near = [
        removal.plan_pruning(removal.parse_limit(text, "--keep")).near
        for text in ("26MB", "24MB", "19MB", "7d", "6d", "4d")
    ]
    assert [bool(told) for told in near] == [False, True, False, False, True, False]
    assert "all runs together take 20.0 MB of the limit of 24MB" in near[1]
    assert "1 run ended nearly 6d ago" in near[4]


def test_what_somebody_else_deletes_meanwhile_is_deleted_and_what_began_again_stays(runs_of_days, living):
    gone, again, kept = runs_of_days(9, 8, 7)
    plan = removal.plan_pruning(removal.parse_limit("1MB", "--keep"))
    shutil.rmtree(runs.run_dir(gone.id))
    runs.save(dataclasses.replace(again, ended_at=None, exit_code=None, supervisor=living))
    told = {stored.run.id: why for stored, why in removal.delete_runs(plan.going)}
    assert told[gone.id] == told[kept.id] == ""
    assert "is running" in told[again.id]
    assert [run.id for run in runs.all_runs()] == [again.id]
