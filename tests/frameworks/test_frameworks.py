"""Trainers that people use instead of a loop of their own: unchanged by watching, and recorded step by step."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from pathlib import Path
from statistics import fmean

import pytest

from ddpmon import runs
from ddpmon.messages import SYNC_GRADIENTS, Step
from ddpmon.recording.recorded import recorded_report
from ddpmon.recording.recording import Recording
from tests import ranks
from tests.conftest import Cli
from tests.probe.conftest import adds_up
from tests.ranks import launcher

pytestmark = pytest.mark.e2e
SCRIPTS = Path(__file__).parent / "scripts"
STEPS = 8
SAMPLES = 8
"""Samples of a rank in a step: two batches of four."""
TIMEOUT_S = 80

# Lightning starts the ranks after the first one itself.
OWN_LAUNCHERS = {"lightning_trainer": [sys.executable, str(SCRIPTS / "lightning_trainer.py")]}
MODULES = (*ranks.TORCH, "vision_first", "lightning", "transformers.trainer", "tqdm")
"""Modules of the scripts that take time to import."""
IMPORTED = {"accelerate_loop": "accelerate", "transformers_trainer": "transformers.trainer"}
PROGRESS = {"lightning_trainer": (STEPS, 2, 2), "transformers_trainer": (STEPS, 1, 1)}
"""The steps there will be, the last epoch and of how many, as trainers know them."""
ENV = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@dataclasses.dataclass
class Rank:
    """The final weights and the losses of one rank."""

    weights: str
    losses: list[float]


def left_by(folder: Path) -> list[Rank]:
    """Return what the ranks of a run left in its folder, by rank."""
    return [Rank(**json.loads(path.read_text())) for path in sorted(folder.glob("rank-*.json"))]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory):
    """Run a script without ddpmon, on so many ranks or in one process; each only once."""

    @functools.cache
    def call(nproc: int | None, script: str, *arguments: str) -> list[Rank]:
        folder = tmp_path_factory.mktemp("bare")
        environment = os.environ | ENV | {"PYTHONPATH": str(SCRIPTS)}
        done = ranks.run(
            *(nproc, SCRIPTS / f"{script}.py", *arguments, str(folder)),
            environment=environment, folder=folder, modules=MODULES, timeout_s=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return left_by(folder)

    return call


@pytest.fixture
def watched(cli: Cli, tmp_path: Path):
    """Run a command of ddpmon to its end; what the ranks left, and their recorded steps."""

    def call(*arguments: str) -> tuple[list[Rank], list[list[Step]]]:
        environment = os.environ | ENV | {"PYTHONPATH": str(SCRIPTS)}
        done = cli(*arguments, str(tmp_path), env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        run = runs.find(None)
        report = recorded_report(run)
        assert report["steps"]["records_lost"] == 0
        logs = "".join(path.read_text() for path in (runs.run_dir(run.id) / "logs").rglob("*.log"))
        assert "ddpmon:" not in logs, "the probe has something to say"
        with Recording(run) as recording:
            ranks = sorted(recording.registry().process_of_rank.items())
            assert len(recording.registry().processes) == len(ranks), "DataLoader workers are no ranks"
            return left_by(tmp_path), [recording.steps.whole_steps(process.id, 1, 1 << 40) for _, process in ranks]

    return call


def progress() -> tuple[int | None, int | None, int | None]:
    """Return what the report of the latest run says there was to do."""
    steps = recorded_report(runs.find(None))["steps"]
    return steps["total"], steps["epoch"], steps["epochs"]


def assert_steps_add_up(steps: list[Step]) -> None:
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    for step in steps:
        assert adds_up(step)
        assert step.backward_us > 0
        assert step.data_us > 0


@pytest.mark.parametrize("framework", ["lightning_trainer", "transformers_trainer", "accelerate_loop"])
def test_a_trainer_trains_as_without_us_and_all_of_it_is_recorded(bare, watched, framework: str) -> None:
    """transformers has no launcher of its own, and Accelerate's is torchrun, which other tests start."""
    expected = bare(2, framework)
    command = OWN_LAUNCHERS.get(framework)
    if command is None:
        modules = (*ranks.TORCH, "vision_first", IMPORTED[framework])
        command = launcher(2, SCRIPTS / f"{framework}.py", "--bar", modules=modules, fresh=True)
    found, recorded = watched("exec", "--", *command)

    assert progress() == PROGRESS.get(framework, (None, None, None))
    assert len(expected) == 2
    assert found == expected, "weights and losses, to the last bit"
    assert len(recorded) == 2
    for steps in recorded:
        assert_steps_add_up(steps)
        for step in steps:
            assert sum(sync.kind == SYNC_GRADIENTS for sync in step.syncs) == 1
            assert step.forward_us > 0
            assert step.samples == SAMPLES
    # Some log each rank's loss, some the mean of all ranks: the mean is the same.
    logged = [fmean(losses) for losses in zip(*(rank.losses for rank in found), strict=True)]
    assert [fmean(step.loss for step in ranks) for ranks in zip(*recorded, strict=True)] == pytest.approx(logged)


def test_bars_of_a_loop_of_ones_own_tell_how_many_steps_and_epochs_there_will_be(bare, watched) -> None:
    expected = bare(2, "tqdm_loop", "--hasty")
    found, recorded = watched("exec", "--", *launcher(2, SCRIPTS / "tqdm_loop.py"))

    assert found == expected
    assert [len(steps) for steps in recorded] == [100, 100]
    assert progress() == (100, 2, 2)
