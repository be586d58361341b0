"""Runs that train with something else than DDP, from their start to every place that tells of them."""

import csv
import json
from pathlib import Path

import pytest

from tests import ranks
from tests.in_process import called

pytestmark = pytest.mark.e2e
SCRIPTS = Path(__file__).parents[1] / "probe" / "scripts"


def run(cli, nproc, script, *arguments, modules=ranks.LIGHT):
    """Run a script headless; what it printed, and the report, status and CSV of it."""
    command = ranks.launcher(nproc, SCRIPTS / script, *arguments, modules=modules)
    ended = cli("exec", "--headless", "--", *command)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    def told(*command):
        return called(*command).stdout

    rows = list(csv.DictReader(told("export", "--format", "csv").splitlines()))
    return ended.stdout, json.loads(told("report", "--format", "json")), json.loads(told("status", "--json")), rows


def test_fsdp2_is_said_and_its_collectives_are_what_ranks_wait_in(cli):
    printed, report, status, rows = run(
        cli, 2, "sharded.py", "fsdp2", "--late", "1", "--steps", "30", modules=ranks.TORCH
    )
    said = "FSDP2, no DDP: a step ends at the optimizer step"
    assert printed.count(said) == 2, "once when it is known, once in the report"
    assert said in status["measured"]
    assert (report["run"]["parallelism"], report["run"]["unmeasured"]) == ("FSDP2", [])
    assert status["parallelism"] == "FSDP2"
    assert report["collectives"]["wait_ms"] > 0
    assert report["all_reduce"]["wait_ms"] is None
    first, late = (report["ranks"][rank]["phases_ms"] for rank in (0, 1))
    assert first["wait"] > late["wait"]
    assert late["data"] > first["data"] + 40
    assert not any("all-reduce" in finding["text"] + finding["advice"] for finding in report["findings"])
    assert "all-reduce wait" not in printed
    assert all(float(row["forward_ms"]) > 0 for row in rows)


def test_one_process_has_no_forward_of_0_00_and_nobody_to_wait_for(cli):
    printed, report, status, rows = run(cli, 1, "single.py")
    assert "one process, no DDP" in printed
    assert status["unmeasured"] == report["run"]["unmeasured"] == ["forward", "wait", "transfer"]
    phases = report["ranks"][0]["phases_ms"]
    assert phases["forward"] is phases["wait"] is phases["transfer"] is None
    assert phases["backward"] > 0
    assert status["wait_share"] is None
    assert set(report["efficiency"].values()) == {None}
    assert {(row["forward_ms"], row["wait_ms"], row["critical"]) for row in rows} == {("", "", "")}
