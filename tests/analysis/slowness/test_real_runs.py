"""Recordings of real runs: four ranks on CPUs, one or two of them delayed from step 60 on, or in every tenth step.

One is of two ranks on a busy machine, of which rank 1 is 40 ms late with its data in all steps.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.analysis.slowness.runs import judgements
from tests.worlds import world_with

FILE = Path(__file__).parent / "real_runs.npz"
"""int16 [S, R, 5]: phases in units of 10 us."""
FIRST_SLOW, WITHIN = 60, 30


def unfolds(name, steps):
    """Judge a recording every 10 steps: [(ranks, phase, pattern)] of each judgement."""
    with np.load(FILE) as file:
        world = world_with(file[name] / 100)
    told = judgements(world.steps_between(0, steps), every=10)
    return [[(each.ranks, each.phase, each.pattern) for each in slowdowns] for _, slowdowns in told]


@pytest.mark.parametrize(
    ("name", "ranks", "phase"),
    [
        ("persistent_0_backward_25", (0,), "backward"),
        ("persistent_0_data_10", (0,), "data"),
        ("persistent_2_backward_25", (2,), "backward"),
        ("persistent_1+3_forward_50", (1, 3), "forward"),
        ("transient_3_optimizer_50", (3,), "optimizer"),
    ],
)
def test_a_slow_rank_of_a_real_run_is_found_within_30_steps(name, ranks, phase):
    found = unfolds(name, FIRST_SLOW + WITHIN)
    assert found[-1] == [(ranks, phase, "lasting")]
    assert all(each in ([], found[-1]) for each in found)
    assert not any(found[: FIRST_SLOW // 10])


def test_a_long_step_in_every_tenth_of_a_real_run_is_found_after_eleven_of_them():
    found = unfolds("periodic_0_other_100", 110)
    assert found[-1] == [((0,), "other", "steps")]
    assert not any(found[:-3])


def test_a_rank_that_is_slow_from_the_start_beside_one_other_on_a_busy_machine_is_found():
    found = unfolds("two busy ranks", 270)
    assert found[17] == found[-1] == [((1,), "data", "lasting")]
    assert all(each in ([], found[-1]) for each in found)
