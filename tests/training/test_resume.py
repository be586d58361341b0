"""Stopping a run loses nothing: the next start goes on, and ends with the same weights bit for bit."""

import re
import signal

import pytest
import torch
from conftest import TRAINING, forked

from tests.ranks import free_port

pytestmark = pytest.mark.e2e

# Two epochs of 93 steps: a stop after the first printed line, step 100, lies inside an epoch. The next twenty steps
# take their time, so that the signal comes while there are some left.
RUN = ("--epochs", 2, "--batch-size", 8, "--seed", 7)
CHECKPOINT = "checkpoints/linear_regression.pt"
STOPPED = (*RUN, "--slow", "other:0:100:100-119", "--save", "weights.pt")


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The weights of the run that nobody stopped."""
    folder = tmp_path_factory.mktemp("never-stopped")
    code, output = forked(folder, "mnist.py", *RUN, "--save", "weights.pt", nproc=2, env={})
    assert code == 0, output
    return torch.load(folder / "weights.pt")


HEARS_TOTALS = """
import contextlib
def step(total):
    print("step of", total)
    return contextlib.nullcontext()
def log(**values):
    pass
"""
"""In place of ddpmon: what the loop says to it."""


def assert_equal(weights, expected):
    assert weights.keys() == expected.keys()
    differing = [name for name in expected if not torch.equal(weights[name], expected[name])]
    assert not differing


def stopped_step(output: str) -> int:
    """The step after which a run says it stopped: inside an epoch, or the test would test less than it says."""
    step = int(re.search(r"stopped after step (\d+) of 186, in checkpoints/mnist.pt", output)[1])
    assert 100 <= step < 186
    assert step % 93
    return step


def test_sigterm_to_torchrun_stops_all_ranks_at_one_step_and_the_same_arguments_go_on(
    start, run, tmp_path, never_stopped
):
    first = start("mnist.py", *STOPPED, nproc=2)
    first.until("step 100/186")
    first.process.terminate()
    first.end()
    step = stopped_step(first.output)
    assert not (tmp_path / "weights.pt").exists()

    code, output = run("mnist.py", *STOPPED, nproc=2)
    assert code == 0, output
    assert f"goes on after step {step} of 186, from checkpoints/mnist.pt" in output
    assert_equal(torch.load(tmp_path / "weights.pt"), never_stopped)
    assert not (tmp_path / "checkpoints" / "mnist.pt").exists(), "the next run starts anew"


def test_ctrl_c_in_one_of_two_ranks_started_by_hand_stops_both_and_both_go_on(start, run, tmp_path, never_stopped):
    by_hand = (*STOPPED, "--world_size", 2)
    port = {"MASTER_PORT": free_port()}
    ranks = [start("mnist.py", *by_hand, "--rank", rank, env=port) for rank in (0, 1)]
    ranks[0].until("step 100/186")
    ranks[1].process.send_signal(signal.SIGINT)
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    step = stopped_step(ranks[0].output)

    code, output = run("mnist.py", *STOPPED, nproc=2)
    assert code == 0, output
    assert f"goes on after step {step}" in output
    assert_equal(torch.load(tmp_path / "weights.pt"), never_stopped)


def test_workers_outlive_a_signal_to_the_process_group_and_other_ranks_go_on_with_the_weights(start, run, tmp_path):
    eight = ("--epochs", 8, "--workers", 1)
    code, output = run("linear_regression.py", *eight, "--save", "expected.pt", nproc=2)
    assert code == 0, output

    first = start("linear_regression.py", *eight, "--slow", "other:0:10", nproc=2)  # seven epochs left: 4 s
    first.until("epoch 1/8")
    first.process.terminate()
    first.end()
    assert "stopped after step" in first.output
    assert "DataLoader" not in first.output

    stopped = (tmp_path / CHECKPOINT).read_bytes()
    code, output = run("linear_regression.py", *eight, "--save", "weights.pt", nproc=2)
    assert code == 0, output
    assert "goes on after step" in output
    assert_equal(torch.load(tmp_path / "weights.pt"), torch.load(tmp_path / "expected.pt"))

    for path in (CHECKPOINT, "stopped.pt"):
        (tmp_path / path).write_bytes(stopped)
    (tmp_path / "heard").mkdir()
    (tmp_path / "heard" / "ddpmon.py").write_text(HEARS_TOTALS)
    heard = {"PYTHONPATH": f"{tmp_path / 'heard'}:{TRAINING}"}
    code, output = run("linear_regression.py", *eight[:2], "--save", "alone.pt", env=heard)
    assert code == 0, output
    epochs = torch.load(tmp_path / "stopped.pt")["epochs"]
    assert epochs >= 1
    step, total = re.search(r"goes on at step (\d+) of (\d+) with the weights of 2 ranks", output).groups()
    assert int(step) * 8 == epochs * int(total)
    assert set(re.findall(r"^step of (\d+)$", output, re.MULTILINE)) == {str(int(total) - int(step))}
    assert f"epoch {epochs}/8" not in output
    assert f"epoch {epochs + 1}/8" in output


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / CHECKPOINT
    path.parent.mkdir()
    torch.save({"run": {"world_size": 4, "batch_size": 64, "seed": 0, "lr": 0.01}}, path)
    return path


def test_a_checkpoint_of_another_run_is_refused_in_one_line_and_kept(run, checkpoint):
    before = checkpoint.read_bytes()
    code, output = run("linear_regression.py")
    assert code == 1
    assert output.splitlines()[1] == (
        "checkpoints/linear_regression.pt is of a run with batch_size 64 (here 32): "
        "--fresh starts anew, --checkpoint PATH keeps it"
    )
    assert checkpoint.read_bytes() == before


def test_a_damaged_checkpoint_is_refused_in_one_line(run, checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    code, output = run("linear_regression.py")
    assert code == 1
    assert "cannot be read as a checkpoint" in output.splitlines()[1]


def test_fresh_starts_anew(run, checkpoint):
    code, output = run("linear_regression.py", "--fresh")
    assert code == 0, output
    assert "goes on" not in output
