"""Every script runs to its end with real ranks, and says what it is there to show."""

import re

import pytest
import torch
from conftest import TRAINING

pytestmark = pytest.mark.e2e


def finished(ended: tuple[int, str]) -> str:
    code, output = ended
    assert code == 0, output
    return output


def test_mnist_learns_the_held_back_digits_to_95_percent(run):
    output = finished(run("mnist.py", "--epochs", 12, "--batch-size", 16, "--lr", 0.02, nproc=2))
    assert re.search(r"step 300/552  loss 0\.\d+  accuracy 0\.\d+", output)
    assert float(re.search(r"test accuracy ([\d.]+)%", output)[1]) >= 95
    assert "of 297 test digits" in output
    assert re.search(r"trained 552 steps in [\d.]+ s", output)


def test_linear_regression_prints_the_loss_of_five_epochs_without_ddpmon_installed(run, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "ddpmon.py").write_text("print('asked for ddpmon')\nraise ImportError\n")
    output = finished(run("linear_regression.py", nproc=2, env={"PYTHONPATH": f"{hidden}:{TRAINING}"}))
    assert "asked for ddpmon" in output
    losses = [float(loss) for loss in re.findall(r"^epoch \d/5 .* loss ([\d.]+)$", output, re.MULTILINE)]
    assert len(losses) == 5
    assert losses[4] < losses[0] / 10


def test_a_slow_rank_makes_every_step_take_at_least_its_delay(run):
    words = ("--epochs", 1, "--slow", "forward:1:20", "--uneven", "0:2", "--workers", 1)
    output = finished(run("linear_regression.py", *words, nproc=2))
    steps, seconds = re.search(r"trained (\d+) steps in ([\d.]+) s", output).groups()
    assert float(seconds) >= int(steps) * 0.020


def test_a_rank_that_fails_ends_the_run_with_its_error(run):
    code, output = run("linear_regression.py", "--fail", "1:20", nproc=2)
    assert code == 1
    assert "[rank1]: RuntimeError: failed at step 20, as --fail asked for" in output


def test_data_parallel_compares_both_and_says_what_it_means_here(run):
    output = finished(run("data_parallel.py", "--steps", 10, "--batch-size", 16, nproc=2))
    assert re.search(r"^nn.DataParallel +processes 1, .* samples/s$", output, re.MULTILINE)
    assert re.search(r"^DistributedDataParallel +processes 2, .* samples/s$", output, re.MULTILINE)
    assert re.search(r"DistributedDataParallel is [\d.]+ times as fast", output)
    assert torch.cuda.is_available() or "Without a GPU" in output


def test_model_parallel_learns_with_a_model_on_two_devices(run):
    output = finished(run("model_parallel.py", "--epochs", 7, nproc=2))
    assert torch.cuda.is_available() or "one half of the model on cpu, the other on cpu" in output
    accuracies = [float(accuracy) for accuracy in re.findall(r"accuracy ([\d.]+)", output)]
    assert accuracies[-1] > 0.9


def test_a_batch_larger_than_a_ranks_share_is_a_one_line_error(run):
    code, output = run("linear_regression.py", "--batch-size", 5000)
    assert code == 1
    assert output.splitlines()[1] == "--batch-size 5000 is larger than a rank's share of the data"


@pytest.mark.parametrize(
    ("script", "dataset", "name"), [("mnist.py", "mnist", "MNIST"), ("resnet.py", "cifar10", "CIFAR-10")]
)
def test_a_download_without_a_network_is_a_one_line_error(run, tmp_path, script, dataset, name):
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    code, output = run(script, "--dataset", dataset, "--data", tmp_path / "data", env=nowhere)
    assert code == 1
    said, error = output.splitlines()
    assert said == "1 rank on the CPU, backend gloo"
    assert error.startswith(f"the download of {name} failed: ")
