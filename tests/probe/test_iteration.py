"""Test which synchronisations make up a step, from the order in which a script synchronises and updates."""

from __future__ import annotations

from time import monotonic_ns

import pytest
import torch

from ddpmon.probe.iteration import MAX_PARTS, Iteration
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
        """Return how many synchronisations each step has that is finished by now."""
        for letter in what:
            if letter == "s":
                self.clock.cut(self.clock.part.start + 1)
                self.iteration.synchronised(marked=False)
            else:
                self.iteration.note_update(self.optimizers[letter])
        return [1 + len(raw.before) for raw in self.clock.finished]


@pytest.mark.parametrize(
    ("optimizers", "what", "steps"),
    [
        ("a", "sa", [1]),
        ("a", "sasasa", [1, 1, 1]),
        ("a", "sssasssa", [3, 3]),  # gradient accumulation that synchronises each time
        ("a", "s" * 8 + "a" + "s" * 8 + "a", [8, 8]),
        ("a", "sassasssa", [1, 2, 3]),  # accumulation that grows
        ("a", "ssssa" + "sssssa", [4, 5]),
        ("ab", "sabsabsabsab", [1, 1, 1, 1]),  # two optimizers for one model
        ("ab", "sasbsasbsasb", [2, 2, 2]),  # two that step alternately
        ("dg", "ssdsgssdsgssdsg", [3, 3, 3]),  # a GAN
        ("dg", "sdsgsdsg", [2, 2]),
        ("dg", "sdsdsdsdsdsg" * 3, [6, 6, 6]),  # a critic that steps five times
        ("dg", "sdsdsgsg" + "sdsg" * 3 + "sdsgsg" + "sdsgsdsg", [4, 2, 2, 2, 3, 2]),  # lazy regularisation
        ("dg", "sdsg" * 3 + "sg" + "sdsg" * 2, [2, 2, 2, 3]),  # its first one comes late: it joins the next step
        ("dge", "sdsgsdsgsdsg", [2, 2, 2]),  # another one never steps
        ("ab", "sa" * 65 + "sasa", [1] * 67),  # another one does not step for long
        ("ab", "sa" * 65 + "sb" + "sa" * 70 + "sb" + "sa", [1] * 65 + [2] + [1] * 69 + [2]),  # it joins seldom
        ("ab", "sa" * 65 + "sasb" * 3 + "sa", [1] * 66 + [2, 3]),  # or each time from some step on
    ],
)
def test_a_step_is_a_cycle_of_the_optimizers(optimizers: str, what: str, steps: list[int]) -> None:
    assert Script(optimizers).does(what) == steps


@pytest.mark.parametrize(
    ("optimizers", "what", "steps"),
    [
        ("a", "ssssss", [1] * 6),  # an optimizer that never steps
        ("ab", "sasasasbsbsb", [1] * 6),  # one model first, then another: no cycle was seen
        ("ab", "ssassa", [2, 2]),
        ("dg", "ssdsgssdsgs", [3, 3, 1]),
        ("", "sss", [1, 1, 1]),
    ],
)
def test_what_is_held_back_is_told_at_the_end(optimizers: str, what: str, steps: list[int]) -> None:
    script = Script(optimizers)
    script.does(what)
    script.iteration.close()
    assert script.does("") == steps


def test_no_update_is_expected_any_more_after_hundreds_of_synchronisations() -> None:
    script = Script("a")
    assert script.does("s" * (MAX_PARTS - 1)) == []
    assert script.does("ss") == [1] * (MAX_PARTS + 1)
    assert script.does("ssa")[MAX_PARTS + 1 :] == [1, 1], "at once, until an optimizer steps"
    assert script.does("sssa")[MAX_PARTS + 3 :] == [3]


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [("sdsgsgsdsgsg", "sasa", [3, 3, 1, 1]), ("sd", "sasa", [1, 1, 1]), ("sdsgsdsg", "sdsgsdsgsdsg", [2] * 5)],
)
def test_one_training_after_another_counts_anew(before: str, after: str, steps: list[int]) -> None:
    """The first one's optimizers are freed, and the second one's may have their keys."""
    script = Script("dg")
    script.does(before)
    for optimizer in script.optimizers.values():
        script.iteration.optimizer_gone(optimizer)
    names = sorted(set(after) - {"s"})
    script.optimizers.update({name: script.optimizers[old] for name, old in zip(names, "dg", strict=False)})
    for name in names:
        script.iteration.optimizer_made(script.optimizers[name])
    assert script.does(after) == steps


def test_optimizers_of_a_training_before_may_live_on() -> None:
    """They are garbage that is not collected yet, in one process that trains several models."""
    script = Script("a")
    assert script.does("sasasa") == [1, 1, 1]
    for name in "bc":
        script.optimizers[name] = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
        script.iteration.optimizer_made(script.optimizers[name])
        script.does(f"s{name}" * 6)
        script.iteration.optimizer_gone(script.optimizers.pop(name))
    assert script.does("") == [1] * 15


def test_optimizers_that_step_in_backward_make_one_update() -> None:
    script = Script("abc")
    for _ in range(3):
        for optimizer in script.optimizers.values():
            script.iteration.optimizer_in_backward(optimizer)
        script.does("s")
    assert script.does("") == [1, 1, 1]
    for optimizer in script.optimizers.values():
        script.iteration.optimizer_gone(optimizer)
    script.iteration.optimizer_made(script.optimizers["a"])
    assert script.does("ssassa") == [1, 1, 1, 2, 2], "what comes later is counted anew"


def test_a_rank_out_of_data_counts_the_steps_of_the_others() -> None:
    """Under Join: with as many parts as its own had."""
    script = Script("a")
    script.does("ssassa")
    for _ in range(4):
        script.clock.cut(script.clock.part.start + 1)
        script.iteration.end_joined_part()
    assert script.does("ssa") == [2, 2, 2, 2, 2]
