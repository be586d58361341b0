"""Stopping a run loses nothing: the next start goes on, and ends with the same weights bit for bit."""

import os
import re
import signal

import pytest
import torch
from conftest import TRAINING

from benchmarks.ports import free_port
from ddpmon import proc
from tests.conftest import wait_for

pytestmark = pytest.mark.e2e

# Two epochs of 64 steps. The first line is printed after an epoch, and the next twenty steps take their time, so that
# the signal comes while there are some left.
SMALLEST = ("--epochs", 2, "--seed", 7, "--workers", 1, "--save", "weights.pt")
SMALLEST_STOPPED = (*SMALLEST, "--slow", "other:0:100:65-84")
CHECKPOINT = "checkpoints/linear_regression.pt"
# The same of digits that are moved at random: two epochs of 93 steps, and a line after step 100.
DIGITS = ("--epochs", 2, "--batch-size", 8, "--seed", 7, "--save", "weights.pt")
DIGITS_STOPPED = (*DIGITS, "--slow", "other:0:100:100-119")


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


def trained(run, folder, script, *words):
    """Train to the end; the output, and the weights that are then taken out of the folder."""
    code, output = run(script, *words, nproc=2)
    assert code == 0, output
    weights = torch.load(folder / "weights.pt")
    (folder / "weights.pt").unlink()
    return output, weights


def by_hand(start, script, *words):
    """Start two ranks, one after the other."""
    port = {"MASTER_PORT": str(free_port())}
    return [start(script, *words, "--world_size", 2, "--rank", rank, env=port) for rank in (0, 1)]


def test_sigterm_to_torchrun_and_ctrl_c_in_one_of_two_ranks_stop_all_at_one_step_and_the_same_arguments_go_on(
    start, run, tmp_path
):
    _, never_stopped = trained(run, tmp_path, "linear_regression.py", *SMALLEST)
    first = start("linear_regression.py", *SMALLEST_STOPPED, nproc=2)
    first.until("epoch 1/2")
    first.process.terminate()
    first.end()
    goes_on_to(never_stopped, first.output, run, tmp_path)

    ranks = by_hand(start, "linear_regression.py", *SMALLEST_STOPPED)
    ranks[0].until("epoch 1/2")
    pid = ranks[1].process.pid
    workers = wait_for(lambda: proc.children().get(pid))
    for each in (pid, *workers):  # as a terminal does
        os.kill(each, signal.SIGINT)
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    assert "DataLoader" not in ranks[1].output
    goes_on_to(never_stopped, ranks[0].output, run, tmp_path)


def goes_on_to(weights, output, run, folder):
    step = stopped_step(output, CHECKPOINT, 128)
    assert not (folder / "weights.pt").exists()
    output, found = trained(run, folder, "linear_regression.py", *SMALLEST_STOPPED)
    assert f"continues after step {step} of 128, from {CHECKPOINT}" in output
    assert not (folder / CHECKPOINT).exists(), "the next run starts anew"
    assert_equal(found, weights)


def test_digits_are_moved_as_without_a_stop_and_another_number_of_ranks_goes_on(start, run, tmp_path):
    ranks = by_hand(start, "mnist.py", *DIGITS_STOPPED)
    ranks[0].until("step 100/186")
    ranks[1].process.terminate()
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    step = stopped_step(ranks[0].output, "checkpoints/mnist.pt", 186)
    checkpoint = tmp_path / "checkpoints" / "mnist.pt"
    stopped = checkpoint.read_bytes()
    output, weights = trained(run, tmp_path, "mnist.py", *DIGITS_STOPPED)
    assert f"continues after step {step} of 186" in output
    assert_equal(weights, trained(run, tmp_path, "mnist.py", *DIGITS)[1])

    checkpoint.write_bytes(stopped)
    (tmp_path / "heard").mkdir()
    (tmp_path / "heard" / "ddpmon.py").write_text(HEARS_TOTALS)
    code, output = run("mnist.py", *DIGITS, env={"PYTHONPATH": f"{tmp_path / 'heard'}:{TRAINING}"})
    assert code == 0, output
    step, total = re.search(r"continues at step (\d+) of (\d+) with the weights of 2 ranks", output).groups()
    assert int(step) * 2 == int(total), "after the first of two epochs"
    assert set(re.findall(r"^step of (\d+)$", output, re.MULTILINE)) == {step}


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
