"""The longest steps of a run, kept whole."""

import numpy as np

from ddpmon.analysis.over_time.longest_steps import MAX_KEPT, MIN_DISTANCE, LongestSteps
from tests.worlds import own_times, world_with


def world(long, steps=1000, ranks=3, first=1):
    own = own_times(steps, ranks)
    for step, extra in long.items():
        own[step - first, 1, 2] += extra
    return world_with(own, first=first)


def fed(made, parts):
    kept = LongestSteps()
    for begin in range(0, len(made), -(-len(made) // parts)):
        kept.append(made.steps_between(begin, begin + -(-len(made) // parts)))
    return kept


def numbers(kept):
    return [int(step.step[0]) for step in kept.steps]


def test_they_are_kept_in_whatever_pieces_steps_come_and_hold_all_that_was_told():
    made = world({100: 40.0, 500: 90.0, 900: 60.0})
    for parts in (1, 7, 200):
        kept = fed(made, parts)
        assert numbers(kept)[:3] == [500, 900, 100]
        assert len(kept.steps) == MAX_KEPT
    at = int(np.searchsorted(made.step, 500))
    assert np.array_equal(kept.find_step(500).phases_ms[0], made.phases_ms[at])
    assert kept.find_step(500).ranks == made.ranks
    assert kept.find_step(7) is None
    assert kept.since == int(made.step[0])


def test_of_a_stretch_of_long_steps_the_longest_stands_for_all():
    long = dict.fromkeys(range(300, 300 + MIN_DISTANCE), 50.0) | {305: 70.0, 800: 30.0}
    assert numbers(fed(world(long), 9))[:2] == [305, 800]


def test_other_ranks_or_steps_from_the_first_begin_anew():
    kept = fed(world({500: 90.0}), 3)
    kept.append(world({20: 10.0}, steps=50))
    assert numbers(kept)[0] == 20
    kept.append(world({40: 10.0}, steps=50, ranks=2))
    assert numbers(kept)[0] == 40
    assert kept.steps[0].ranks == (0, 1)
    kept.append(world({}, steps=50, ranks=2).steps_between(0, 0))
    assert numbers(kept)[0] == 40
