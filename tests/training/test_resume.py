"""Stopping a run loses nothing: the next start goes on, and ends with the same weights bit for bit."""

import os
import re
import signal

import pytest
import torch
from conftest import TRAINING

from benchmarks.ports import free_port
from ddpmon.runs import proc
from tests.conftest import wait_for

pytestmark = pytest.mark.e2e

# Two epochs of 93 steps: a stop after the first printed line, step 100, lies inside an epoch. The next twenty steps
# take their time, so that the signal comes while there are some left.
RUN = ("--epochs", 2, "--batch-size", 8, "--seed", 7)
CHECKPOINT = "checkpoints/linear_regression.pt"
STOPPED = (*RUN, "--slow", "other:0:100:100-119", "--save", "weights.pt")
# The same of the smallest script, which prints after an epoch of 64 steps.
SMALLEST = ("--epochs", 2, "--seed", 7, "--workers", 1, "--save", "weights.pt")
SMALLEST_STOPPED = (*SMALLEST, "--slow", "other:0:100:65-84")


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


def stopped_step(output: str, checkpoint: str, total: int) -> int:
    """The step after which a run of two epochs stopped: inside one, or the test would test less than it says."""
    step = int(re.search(rf"stopped after step (\d+) of {total}, in {checkpoint}", output)[1])
    assert total / 2 < step < total
    return step


def test_sigterm_to_torchrun_stops_all_ranks_at_one_step_and_the_same_or_other_ranks_go_on(start, run, tmp_path):
    first = start("mnist.py", *STOPPED, nproc=2)
    first.until("step 100/186")
    first.process.terminate()
    first.end()
    step = stopped_step(first.output, "checkpoints/mnist.pt", 186)
    assert not (tmp_path / "weights.pt").exists()
    checkpoint = tmp_path / "checkpoints" / "mnist.pt"
    stopped = checkpoint.read_bytes()

    code, output = run("mnist.py", *STOPPED, nproc=2)
    assert code == 0, output
    assert f"continues after step {step} of 186, from checkpoints/mnist.pt" in output
    assert not checkpoint.exists(), "the next run starts anew"
    code, output = run("mnist.py", *RUN, "--save", "expected.pt", nproc=2)
    assert code == 0, output
    assert_equal(torch.load(tmp_path / "weights.pt"), torch.load(tmp_path / "expected.pt"))

    checkpoint.write_bytes(stopped)
    (tmp_path / "heard").mkdir()
    (tmp_path / "heard" / "ddpmon.py").write_text(HEARS_TOTALS)
    code, output = run("mnist.py", *RUN, env={"PYTHONPATH": f"{tmp_path / 'heard'}:{TRAINING}"})
    assert code == 0, output
    step, total = re.search(r"continues at step (\d+) of (\d+) with the weights of 2 ranks", output).groups()
    assert int(step) * 2 == int(total), "after the first of two epochs"
    assert set(re.findall(r"^step of (\d+)$", output, re.MULTILINE)) == {step}


def test_ctrl_c_in_one_of_two_ranks_started_by_hand_stops_both_and_both_go_on(start, run, tmp_path):
    code, output = run("linear_regression.py", *SMALLEST, nproc=2)
    assert code == 0, output
    never_stopped = torch.load(tmp_path / "weights.pt")
    (tmp_path / "weights.pt").unlink()

    by_hand = (*SMALLEST_STOPPED, "--world_size", 2)
    port = {"MASTER_PORT": str(free_port())}
    ranks = [start("linear_regression.py", *by_hand, "--rank", rank, env=port) for rank in (0, 1)]
    ranks[0].until("epoch 1/2")
    pid = ranks[1].process.pid
    workers = wait_for(lambda: proc.children().get(pid))
    for each in (pid, *workers):  # as a terminal does
        os.kill(each, signal.SIGINT)
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    assert "DataLoader" not in ranks[1].output
    step = stopped_step(ranks[0].output, CHECKPOINT, 128)

    code, output = run("linear_regression.py", *SMALLEST_STOPPED, nproc=2)
    assert code == 0, output
    assert f"continues after step {step}" in output
    assert_equal(torch.load(tmp_path / "weights.pt"), never_stopped)


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
        "checkpoints/linear_regression.pt belongs to a run with batch_size 64 (here 32): "
        "start over with --fresh, or keep it and give --checkpoint PATH"
    )
    assert checkpoint.read_bytes() == before


def test_a_damaged_checkpoint_is_refused_in_one_line(run, checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    code, output = run("linear_regression.py")
    assert code == 1
    assert "is not a readable checkpoint" in output.splitlines()[1]


def test_fresh_starts_anew(run, checkpoint):
    code, output = run("linear_regression.py", "--fresh")
    assert code == 0, output
    assert "continues" not in output
