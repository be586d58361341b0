"""The last steps: who arrived last, and how long they had been without the rank that holds the others back."""

import numpy as np
import pytest

from ddpmon.analysis.findings import ranks_to_fix
from ddpmon.analysis.steps.what_if import timeline
from ddpmon.messages import Finding
from tests.worlds import own_times, world_with


def world(extra_ms, late=2, ranks=4, steps=30):
    own = own_times(steps, ranks)
    own[:, late, 0] += extra_ms
    return world_with(own)


def test_the_late_rank_comes_first_and_mending_it_gives_the_others_step():
    told = timeline(world(12.0), 5, [2])
    assert len(told.world) == 5
    assert told.order[0] == 2
    assert sorted(told.order) == [0, 1, 2, 3]
    assert told.mended == [2]
    assert told.world.step_ms == pytest.approx([45.0] * 5)
    assert told.mended_ms == pytest.approx([33.0] * 5)


def test_without_a_finding_nobody_is_mended_but_the_critical_rank_of_a_single_step():
    told = timeline(world(12.0), 2)
    assert told.mended == []
    assert told.mended_ms == [None, None]
    single = timeline(world(12.0), 1)
    assert single.mended == [int(single.world.critical[0])]
    assert single.mended_ms[0] < single.world.step_ms[0]


def test_who_is_not_there_and_everyone_together_are_mended_by_nobody():
    assert timeline(world(12.0), 4, [9]).mended == []
    assert timeline(world(12.0), 4, [0, 1, 2, 3], "b").mended == []
    assert timeline(world(12.0), 4, [0, 1, 2, 3], "b").host == ""


@pytest.mark.parametrize(
    ("kind", "ranks", "facts", "whom"),
    [
        ("straggler", [2], {}, ([2], "")),
        ("several_stragglers", [1, 3], {}, ([1, 3], "")),
        ("slow_host", [2, 3], {"subject": "b"}, ([2, 3], "b")),
        ("straggler", [2], {"until_step": 12}, ([], "")),
        ("data_bound", [0, 1, 2, 3], {}, ([], "")),
        ("cpu_starved", [2], {"cost_ms": None}, ([], "")),
    ],
)
def test_who_is_to_be_mended_is_who_is_late_by_itself_and_still(kind, ranks, facts, whom):
    one = Finding(kind, "warn", "", ranks, **{"cost_ms": 12.0} | facts)
    assert ranks_to_fix([Finding("data_bound", "warn", "", [0, 1], cost_ms=1.0), one]) == whom


def test_a_rank_that_was_faster_in_a_step_is_not_made_slower():
    own = own_times(10, 3)
    own[:, 1, 0] += 12.0
    own[-1, 1] /= 2
    told = timeline(world_with(own), 10, [1])
    assert told.mended_ms[-1] == pytest.approx(told.world.step_ms[-1])
    assert (np.array(told.mended_ms) <= told.world.step_ms + 1e-9).all()


def test_one_rank_alone_is_told_of_and_never_mended():
    told = timeline(world(0.0, late=0, ranks=1), 4, [0])
    assert (told.mended, told.order) == ([], [0])


def test_a_host_is_mended_with_all_of_its_late_ranks():
    own = own_times(20, 4)
    own[:, 2:, 0] += 12.0
    view = timeline(world_with(own), 5, [2, 3], "b")
    assert (view.mended, view.host) == ([2, 3], "b")
    assert view.mended_ms == pytest.approx([33.0] * 5)
