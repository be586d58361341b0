"""The main job, whole: the shipped workloads under `ddpmon run`, against bare ranks, and what the report says."""

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
WORKLOADS = {
    "mnist.py": ["--epochs", "1"],
    "resnet.py": ["--epochs", "1", "--images", "80", "--image-size", "16", "--batch-size", "4"],
}


@pytest.mark.parametrize(
    ("script", "said", "way"), [("mnist.py", "accuracy", "run"), ("resnet.py", "images/s", "exec")]
)
def test_weights_are_bit_identical_and_every_step_is_recorded(
    cli: Cli, tmp_path: Path, script: str, said: str, way: str
) -> None:
    """Ranks that torchrun starts import torch and torchvision each; those of the second script are forked."""
    arguments = [str(TRAINING / script), *WORKLOADS[script], "--checkpoint", str(tmp_path / "checkpoint.pt"), "--save"]
    forked = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TRAINING)}
    bare = ranks.run(
        RANKS,
        TRAINING / script,
        *arguments[1:],
        str(tmp_path / "bare.pt"),
        environment=forked,
        modules=MODULES,
    )
    assert bare.returncode == 0, bare.stderr
    assert said in bare.stdout
    arguments.append(str(tmp_path / "watched.pt"))
    if way == "run":
        watched = cli("run", "--headless", "--nproc", str(RANKS), *arguments, timeout=120)
    else:
        command = ranks.launcher(RANKS, TRAINING / script, *arguments[1:], modules=MODULES)
        watched = cli("exec", "--headless", "--", *command, env=forked, timeout=120)
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
