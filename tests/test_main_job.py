"""The main job, whole: a shipped workload under `ddpmon run`, against bare ranks, and what the report says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from tests import ranks
from tests.conftest import Cli
from tests.in_process import called

pytestmark = pytest.mark.e2e
TRAINING = Path(__file__).parent.parent / "training"
RANKS = 2
MODULES = (*ranks.TORCH, "vision")
"""Modules of the scripts that take time to import: the last one is torchvision."""


def test_weights_are_bit_identical_and_every_step_is_recorded(cli: Cli, tmp_path: Path) -> None:
    """Ranks that torchrun starts import torch and torchvision each; the bare ones are forked."""
    script = TRAINING / "mnist.py"
    arguments = ["--epochs", "1", "--checkpoint", str(tmp_path / "checkpoint.pt"), "--save"]
    forked = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TRAINING)}
    bare = ranks.run(RANKS, script, *arguments, str(tmp_path / "bare.pt"), environment=forked, modules=MODULES)
    assert bare.returncode == 0, bare.stderr
    assert "accuracy" in bare.stdout
    command = ["run", "--headless", "--nproc", str(RANKS), str(script), *arguments, str(tmp_path / "watched.pt")]
    watched = cli(*command)
    assert watched.returncode == 0, watched.stdout + watched.stderr

    before, after = (torch.load(tmp_path / f"{name}.pt") for name in ("bare", "watched"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)

    report = json.loads(called("report", "--format", "json").stdout)
    assert report["run"]["state"] == "done"
    assert report["run"]["world_size"] == len(report["ranks"]) == RANKS
    assert report["steps"]["records_lost"] == 0
    assert {rank["steps"] for rank in report["ranks"]} == {report["steps"]["count"]}
    assert report["steps"]["count"] > 5
    # A rank's steps are its own: where cores are shared, its first and last end can lie apart from the other ranks'.
    apart = 200 / report["steps"]["count"]
    for rank in report["ranks"]:
        assert sum(rank["phases_ms"].values()) == pytest.approx(report["steps"]["step_ms"]["mean"], rel=0.02, abs=apart)
        assert rank["loss"] is not None
        assert rank["samples_per_s"] > 0
