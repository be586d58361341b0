"""Which synchronisations make up a step, from the order in which a script synchronises and updates."""

from __future__ import annotations

from time import monotonic_ns

import pytest
import torch

from ddpmon.probe.iteration import Iteration
from ddpmon.probe.stepclock import StepClock


class Script:
    """A script's loop, in words: "s" synchronises gradients, a letter steps the optimizer of that name."""

    def __init__(self, optimizers: str) -> None:
        self.clock = StepClock(monotonic_ns)
        self.names: dict[torch.optim.Optimizer, str] = {}
        self.iteration = Iteration(self.clock, lambda optimizer: self.names[optimizer])
        self.optimizers = {name: torch.optim.SGD([torch.zeros(1, requires_grad=True)]) for name in optimizers}
        for name, optimizer in self.optimizers.items():
            self.names[optimizer] = name
            self.iteration.optimizer_made(optimizer)

    def does(self, what: str) -> list[int]:
        """How many synchronisations each step has that is finished by now."""
        for letter in what:
            if letter == "s":
                self.clock.cut(self.clock.start + 1)
                self.iteration.synchronised(marked=False)
            else:
                self.iteration.updated(self.optimizers[letter])
        return [1 + len(raw.before) for raw in self.clock.finished]


@pytest.mark.parametrize(
    ("optimizers", "what", "steps"),
    [
        ("a", "sa", [1]),
        ("a", "sasasa", [1, 1, 1]),
        ("a", "sssasssa", [3, 3]),  # gradient accumulation that synchronises each time
        ("ab", "sabsabsabsab", [1, 1, 1, 1]),  # two optimizers for one model
        ("dg", "ssdsgssdsgssdsg", [3, 3, 3]),  # a GAN
        ("dg", "sdsgsdsg", [2, 2]),
        ("dg", "sdsdsdsdsgsdsdsdsdsg", [1, 1, 1, 1, 2, 1, 1, 1]),  # a generator that is trained every fourth time
        ("ab", "sasasasbsbsb", [1, 1, 1, 1, 1]),  # one model first, then another: the last is told once it is over
        ("a", "ssssss", [1, 1, 1, 1, 1, 1]),  # an optimizer that never steps: known when there are four
    ],
)
def test_steps_are_iterations(optimizers: str, what: str, steps: list[int]) -> None:
    done = Script(optimizers).does(what)
    assert done[: len(steps)] == steps
    assert sum(done) <= what.count("s")


def test_without_any_optimizer_each_synchronisation_ends_a_step_once_that_is_known() -> None:
    script = Script("")
    assert script.does("sss") == []
    assert script.does("s") == [1, 1, 1, 1]
    assert script.does("s") == [1, 1, 1, 1, 1]


def test_steps_are_numbered_in_order_and_models_named_where_there_are_several() -> None:
    script = Script("dg")
    script.does("ssdsg" * 3)
    assert [raw.step for raw in script.clock.finished] == [1, 2, 3]
    assert [raw.updates for raw in script.clock.finished] == [(("d", 2), ("g", 3))] * 3


def test_what_is_left_at_the_end_is_a_step() -> None:
    script = Script("dg")
    script.does("ssdsgssdsgs")
    script.iteration.end()
    assert [1 + len(raw.before) for raw in script.clock.finished] == [3, 3, 1]
