"""Stopping a run loses nothing: the next start goes on, and ends with the same weights bit for bit."""

import re
import signal
import socket

import pytest
import torch
from conftest import starter

pytestmark = pytest.mark.e2e

# Eight epochs of 23 steps: a stop after the first printed line, step 100, lies inside an epoch.
RUN = ("--epochs", 8, "--seed", 7)


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The weights of the run that nobody stopped."""
    folder = tmp_path_factory.mktemp("never-stopped")
    with starter(folder) as start:
        started = start("mnist.py", *RUN, "--save", folder / "weights.pt", nproc=2)
        assert started.end() == 0, started.output
    return torch.load(folder / "weights.pt")


def assert_equal(weights, expected):
    assert weights.keys() == expected.keys()
    differing = [name for name in expected if not torch.equal(weights[name], expected[name])]
    assert not differing


def stopped_step(output: str) -> int:
    """The step after which a run says it stopped: inside an epoch, or the test would test less than it says."""
    step = int(re.search(r"stopped after step (\d+) of 184, in checkpoints/mnist.pt", output)[1])
    assert 100 <= step < 184
    assert step % 23
    return step


def test_sigterm_to_torchrun_stops_all_ranks_at_one_step_and_the_same_command_goes_on(start, tmp_path, never_stopped):
    first = start("mnist.py", *RUN, "--save", "weights.pt", nproc=2)
    first.until("step 100/184")
    first.process.terminate()
    first.end()
    step = stopped_step(first.output)
    assert not (tmp_path / "weights.pt").exists()

    second = start("mnist.py", *RUN, "--save", "weights.pt", nproc=2)
    assert second.end() == 0, second.output
    assert f"goes on after step {step} of 184, from checkpoints/mnist.pt" in second.output
    assert_equal(torch.load(tmp_path / "weights.pt"), never_stopped)
    assert not (tmp_path / "checkpoints" / "mnist.pt").exists(), "the next run starts anew"


def test_ctrl_c_in_one_of_two_ranks_started_by_hand_stops_both_and_both_go_on(start, tmp_path, never_stopped):
    def both():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = {"MASTER_PORT": str(free.getsockname()[1])}
        by_hand = (*RUN, "--save", "weights.pt", "--world_size", 2)
        return [start("mnist.py", *by_hand, "--rank", rank, env=port) for rank in (0, 1)]

    ranks = both()
    ranks[0].until("step 100/184")
    ranks[1].process.send_signal(signal.SIGINT)
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    step = stopped_step(ranks[0].output)

    ranks = both()
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
    assert f"goes on after step {step}" in ranks[0].output
    assert_equal(torch.load(tmp_path / "weights.pt"), never_stopped)


def test_dataloader_workers_outlive_the_signal_that_torchrun_sends_to_the_whole_process_group(start, tmp_path):
    run = ("--epochs", 8, "--workers", 1)
    assert start("linear_regression.py", *run, "--save", "expected.pt", nproc=2).end() == 0

    first = start("linear_regression.py", *run, "--slow", "other:0:10", nproc=2)  # seven epochs left: 4 s
    first.until("epoch 1/8")
    first.process.terminate()
    first.end()
    assert "stopped after step" in first.output
    assert "DataLoader" not in first.output

    second = start("linear_regression.py", *run, "--save", "weights.pt", nproc=2)
    assert second.end() == 0, second.output
    assert "goes on after step" in second.output
    assert_equal(torch.load(tmp_path / "weights.pt"), torch.load(tmp_path / "expected.pt"))


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoints" / "linear_regression.pt"
    path.parent.mkdir()
    torch.save({"run": {"world_size": 4, "batch_size": 32, "seed": 0, "lr": 0.01}}, path)
    return path


def test_a_checkpoint_of_another_run_is_refused_in_one_line_and_kept(start, checkpoint):
    before = checkpoint.read_bytes()
    started = start("linear_regression.py")
    assert started.end() == 1
    assert started.output.splitlines()[1] == (
        "checkpoints/linear_regression.pt is of a run with world_size 4 (here 1): "
        "--fresh starts anew, --checkpoint PATH keeps it"
    )
    assert checkpoint.read_bytes() == before


def test_a_damaged_checkpoint_is_refused_in_one_line(start, checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    started = start("linear_regression.py")
    assert started.end() == 1
    assert "cannot be read as a checkpoint" in started.output.splitlines()[1]


def test_fresh_starts_anew(start, checkpoint):
    started = start("linear_regression.py", "--fresh")
    assert started.end() == 0, started.output
    assert "goes on" not in started.output
