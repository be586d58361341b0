"""Libraries look for torch before anyone imports it; ranks that nobody watches are told of, with what to do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.recording.recorded import recorded_report, recorded_snapshot
from tests.conftest import Cli

pytestmark = pytest.mark.e2e
SCRIPT = str(Path(__file__).parent / "scripts" / "imports_first.py")
ENV = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
ALONE = ENV | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""One rank that no launcher started."""


def test_what_imports_a_library_first_is_watched_from_its_first_step(cli: Cli) -> None:
    """datasets and transformers look torch up in the same way, and transformers imports three times as much."""
    done = cli("exec", "--headless", "--", sys.executable, SCRIPT, "datasets", env=os.environ | ALONE)
    assert done.returncode == 0, done.stdout + done.stderr
    report = recorded_report(runs.find(None))
    assert report["verdict"].startswith("done: 4 steps in ")
    assert [rank["steps"] for rank in report["ranks"]] == [4]


def test_an_interpreter_that_ignores_the_environment_is_told_of(cli: Cli) -> None:
    done = cli("exec", "--headless", "--", sys.executable, "-E", SCRIPT, "json", env=os.environ | ALONE)
    assert done.returncode == 0, done.stdout + done.stderr
    run = runs.find(None)
    shot = recorded_snapshot(run)
    said = "rank 0 ran torch without the probe: put import ddpmon; ddpmon.init() into the script ("
    assert f", no step recorded: {said}" in shot.verdict
    assert shot.severity == "warn"
    assert said in " ".join(done.stdout.split()), "whatever lines the report breaks it into"
    assert said in json.loads((runs.run_dir(run.id) / "report.json").read_text())["verdict"]
