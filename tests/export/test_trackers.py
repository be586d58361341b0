"""ddpmon publish: a run's series and findings in the stores of TensorBoard, MLflow and W&B, on this disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.cli.commands.replaying import unpack
from ddpmon.errors import DdpmonError
from ddpmon.export import trackers
from tests.conftest import ddpmon_program
from tests.ranks import launcher

LOOP = """
import time, torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(300):
    time.sleep(0.02)
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.barrier()
del model  # else gloo's thread and this one may wait for each other for ever
dist.destroy_process_group()
"""


@pytest.fixture
def demo(home):
    return unpack()


def published(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ddpmon_program(), "publish", *words], env={**os.environ, **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def without(module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: of the three, only tensorboard is small enough for the extra dev")


def events(folder: Path):
    """TensorBoard's own reading of the one run in a folder, which a process of its own does: its imports warn."""
    program = (
        "import json, sys\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "read = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})\n"
        "read.Reload()\n"
        "own = [(e.step, e.value) for e in read.Scalars('ddpmon/own/median')]\n"
        "text = read.Tensors('ddpmon/report')[0].tensor_proto.string_val[0].decode()\n"
        "print(json.dumps([read.Tags()['scalars'], own, text]))\n"
    )
    (run,) = folder.iterdir()
    read = subprocess.run([sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True)
    return json.loads(read.stdout)


def test_tensorboard_has_all_series_and_the_report(demo, tmp_path):
    without("tensorboard")
    done = published("--tensorboard", str(tmp_path / "events"))
    assert done.returncode == 0, done.stderr
    tags, own, report = events(tmp_path / "events")
    assert {"ddpmon/own/lowest", "ddpmon/own/highest", "ddpmon/loss/median", "ddpmon/cpu/median"} <= set(tags)
    steps = [step for step, _ in own]
    assert steps == sorted(steps)
    assert 1 < len(steps) <= trackers.MAX_SERIES_POINTS
    assert steps[-1] == 1248
    assert all(20 < value < 80 for _, value in own)
    assert "rank 2 was slow from step 450 to 796" in report


def test_mlflow_has_metrics_verdict_and_report(demo, tmp_path):
    without("mlflow")
    store = f"file://{tmp_path}/store"
    done = published("--mlflow", store, MLFLOW_ALLOW_FILE_STORE="true")
    assert done.returncode == 0, done.stderr
    (metric,) = tmp_path.glob("store/*/*/metrics/ddpmon/own/median")
    assert metric.read_text().splitlines()[-1].split()[-1] == "1248"
    (verdict,) = tmp_path.glob("store/*/*/tags/ddpmon.verdict")
    assert "rank 2 was slow" in verdict.read_text()
    (report,) = tmp_path.glob("store/*/*/artifacts/ddpmon-report.md")
    assert "straggler" in report.read_text()


def test_wandb_has_them_offline_and_nothing_of_the_machine(demo, tmp_path):
    without("wandb")
    done = published("--wandb", "project", WANDB_MODE="offline", WANDB_DIR=str(tmp_path), WANDB_SILENT="true")
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.rglob(f"run-{demo.id}.wandb")
    content = written.read_bytes()
    assert b"ddpmon/own/median" in content
    assert b"rank 2 was slow from step 450 to 796" in content
    assert b"system.cpu" not in content


@pytest.mark.e2e
def test_a_run_is_followed_to_its_end_by_an_option_of_the_command_that_starts_it(cli, tmp_path):
    without("tensorboard")
    script = tmp_path / "train.py"
    script.write_text(LOOP)
    done = cli("exec", "--headless", "--tensorboard", str(tmp_path / "events"), "--", *launcher(2, script))
    assert done.returncode == 0, done.stdout + done.stderr
    tags, own, report = events(tmp_path / "events")
    assert own[-1][0] == 300
    assert {"ddpmon/step_ms", "ddpmon/samples_per_s", "ddpmon/own/highest"} <= set(tags)
    assert "done: 300 steps" in report


@pytest.mark.e2e
def test_a_client_that_fails_is_a_line_at_the_end_of_a_run_that_goes_on(cli, tmp_path):
    without("tensorboard")
    script, occupied = tmp_path / "train.py", tmp_path / "occupied"
    script.write_text(LOOP.replace("range(300)", "range(30)"))
    occupied.touch()
    done = cli("exec", "--headless", "--tensorboard", str(occupied), "--", *launcher(2, script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done: 30 steps" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("ddpmon: --tensorboard: ")


@pytest.mark.parametrize("command", [("publish",), ("exec", "--", "true")])
@pytest.mark.parametrize(("module", "option"), [
    ("wandb", "--wandb"), ("mlflow", "--mlflow"), ("tensorboard", "--tensorboard"),
])  # fmt: skip
def test_a_client_that_is_not_installed_is_one_line(demo, cli, monkeypatch, module, option, command):
    monkeypatch.setitem(sys.modules, module, None)
    name, *rest = command
    done = cli(name, option, "x", *rest)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ddpmon: {option} needs {module}")
    assert "pip install" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert runs.all_runs() == [demo]


def test_a_client_that_fails_is_one_line_without_secrets():
    def fail():
        raise ConnectionError("no route to --password hunter22hunter\nTraceback …")

    with pytest.raises(DdpmonError) as error:
        trackers.guarded("--mlflow", fail)
    assert str(error.value) == "--mlflow: ConnectionError: no route to --password …"
