"""Ordered faults lie where they were ordered, on the rank they were ordered for, and nowhere else."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import arguments
import faults
from faults import PHASES, Faults


def parse(monkeypatch, *words, rank=1, world_size=2):
    monkeypatch.setattr("sys.argv", ["mnist.py", *words, "--world_size", str(world_size), "--rank", str(rank)])
    monkeypatch.delenv("RANK", raising=False)
    return arguments.parse(arguments.parser("", batch_size=4))


@pytest.fixture
def slept(monkeypatch):
    """Record where the training was, and for how long, at each sleep; nothing really sleeps."""
    places = []
    monkeypatch.setattr(faults.time, "sleep", lambda s: places.append((Trainer.place, s)) if s else None)
    return places


class Trainer:
    """A training loop that knows which phase it is in."""

    place = None

    def __init__(self, ordered: Faults):
        torch.manual_seed(0)
        self.ordered = ordered
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        ordered.inject(self.model, self.optimizer)
        samples = TensorDataset(torch.arange(36.0).reshape(12, 3) / 36)
        self.batches = iter(DataLoader(ordered.dataset(samples), batch_size=4))

    def step(self, number=1):
        Trainer.place = "data"
        (inputs,) = next(self.batches)
        Trainer.place = "other"
        self.ordered.between_phases(number)
        Trainer.place = "forward"
        outputs = self.model(inputs)
        Trainer.place = "backward"
        outputs.square().mean().backward()
        Trainer.place = "optimizer"
        self.optimizer.step()
        self.optimizer.zero_grad()
        Trainer.place = None
        return len(inputs)

    def weights(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


@pytest.mark.parametrize("phase", PHASES)
def test_slow_delays_its_phase_once_in_each_of_some_steps_and_changes_no_weight(monkeypatch, slept, phase):
    slow = Trainer(Faults.of(parse(monkeypatch, "--slow", f"{phase}:1:30:2-3")))
    plain = Trainer(Faults.none())
    seen = []
    for number in (1, 2, 3):
        for trainer in (slow, plain):
            trainer.step(number)
        seen.append(len(slept))
    assert seen == [0, 1, 2]
    assert slept == [(phase, 0.03)] * 2
    assert torch.equal(slow.weights(), plain.weights())


def test_workers_count_steps_as_the_training_does(monkeypatch):
    ordered = Faults.of(parse(monkeypatch, "--slow", "data:1:30:2-3"))
    asked = []
    monkeypatch.setattr(Faults, "delay", lambda self, phase, step=None: asked.append(step))
    for worker in range(2):
        told = SimpleNamespace(num_workers=2, id=worker)
        monkeypatch.setattr(faults, "get_worker_info", lambda told=told: told)
        dataset = ordered.dataset(TensorDataset(torch.zeros(8, 1)))
        for _ in range(2):
            dataset.__getitems__([0, 1])
    assert asked == [1, 3, 2, 4]


def test_slow_leaves_other_ranks_alone(monkeypatch, slept):
    words = [word for phase in PHASES for word in ("--slow", f"{phase}:1:30")]
    Trainer(Faults.of(parse(monkeypatch, *words, rank=0))).step()
    assert slept == []


def test_slow_may_be_given_several_times(monkeypatch, slept):
    words = ("--slow", "data:1:10", "--slow", "optimizer:1:20", "--slow", "data:1:5")
    Trainer(Faults.of(parse(monkeypatch, *words))).step()
    assert slept == [("data", pytest.approx(0.015)), ("optimizer", 0.02)]


def test_slow_forward_and_backward_do_not_touch_evaluation(monkeypatch, slept):
    words = ("--slow", "forward:1:30", "--slow", "backward:1:30")
    trainer = Trainer(Faults.of(parse(monkeypatch, *words)))
    with torch.no_grad():
        trainer.model.eval()(torch.ones(1, 3))
    assert slept == []


@pytest.mark.parametrize(("factor", "size"), [("2", 8), ("1.25", 5), ("0.5", 2), ("0.001", 1)])
def test_uneven_changes_the_batches_of_its_rank_and_not_their_number(monkeypatch, factor, size):
    """Ranks with fewer batches than others would leave those waiting."""
    uneven = parse(monkeypatch, "--uneven", f"1:{factor}")
    even = parse(monkeypatch, "--uneven", f"1:{factor}", rank=0)
    assert [Trainer(Faults.of(uneven)).step() for _ in range(3)] == [size] * 3
    assert len(list(Trainer(Faults.of(uneven)).batches)) == len(list(Trainer(Faults.of(even)).batches)) == 3
    assert Trainer(Faults.of(even)).step() == 4


def test_fail_raises_at_its_step(monkeypatch):
    trainer = Trainer(Faults.of(parse(monkeypatch, "--fail", "1:2")))
    trainer.step(1)
    with pytest.raises(RuntimeError, match="failed at step 2"):
        trainer.step(2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--slow", "backward"), "not PHASE:RANK:MS"),
        (("--slow", "lunch:1:30"), "no phase 'lunch'"),
        (("--slow", "data:one:30"), "not PHASE:RANK:MS"),
        (("--slow", "data:1:nan"), "not a delay"),
        (("--slow", "data:1:30:9-3"), "9-3 is not a range"),
        (("--slow", "data:2:30"), "no rank 2 in a world of 2"),
        (("--uneven", "1"), "not RANK:FACTOR"),
        (("--uneven", "1:0"), "0 times as large"),
        (("--uneven", "1:inf"), "inf times as large"),
        (("--fail", "1:x"), "not RANK:STEP"),
        (("--fail", "1:0"), "steps count from 1"),
        (("--batch-size", "0"), "whole number of 1"),
        (("--batch-size", "²"), "whole number of 1"),
        (("--bogus",), "unrecognized"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_2(monkeypatch, capsys, words, complaint):
    option, *value = words
    with pytest.raises(SystemExit) as left:
        parse(monkeypatch, "=".join((option, *value)))
    lines = capsys.readouterr().err.splitlines()
    assert left.value.code == 2
    assert len(lines) == 1
    assert lines[0].startswith("mnist.py: error: ")
    assert complaint in lines[0]


@pytest.mark.parametrize("words", [["--world_size", "2"], ["--rank", "1"], ["--world_size", "2", "--rank", "-1"]])
def test_a_start_by_hand_needs_a_rank_within_the_world(monkeypatch, capsys, words):
    monkeypatch.setattr("sys.argv", ["mnist.py", *words])
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(arguments.parser("", batch_size=4))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_rank_and_world_size_of_a_launcher_count_and_are_not_given_twice(monkeypatch, capsys):
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["mnist.py"])
    args = arguments.parse(arguments.parser("", batch_size=4))
    assert (args.rank, args.world_size, args.local_rank, args.local_world_size) == (3, 4, 1, 2)
    monkeypatch.setattr("sys.argv", ["mnist.py", "--rank", "3"])
    with pytest.raises(SystemExit, match="2"):
        arguments.parse(arguments.parser("", batch_size=4))
    assert "a launcher has set them" in capsys.readouterr().err
