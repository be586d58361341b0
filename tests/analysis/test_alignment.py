"""Test which steps are handed out, and when."""

from dataclasses import fields

import numpy as np
import pytest

from ddpmon.analysis.steps.alignment import MAX_LAG_US, MAX_PARTIAL_STEPS, Aligner
from ddpmon.analysis.steps.table import steps_of
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.window import Window
from tests.worlds import own_times, records, world_of, world_with


def numbers(taken):
    return [number for rows in taken for number in rows.step_numbers()]


@pytest.mark.parametrize("ranks", [1, 5])
def test_records_that_come_rank_by_rank_make_the_world_that_they_are_of(ranks):
    own = own_times(70, ranks, noise=0.1)
    lined_up, made = world_of(records(own, loss=own[..., 0])), world_with(own, loss=own[..., 0])
    for field in fields(made):
        np.testing.assert_array_equal(getattr(lined_up, field.name), getattr(made, field.name), field.name)


def test_a_step_that_a_rank_never_told_of_is_left_out():
    told = records(own_times(5, 2))
    aligner = Aligner(2)
    aligner.add(0, told[0])
    aligner.add(1, told[1][:2] + told[1][3:])
    assert numbers(aligner.pop_complete()) == [2, 3, 5, 6]
    assert aligner.left_out == 1


def test_what_comes_of_a_step_that_waits_joins_what_is_there_and_the_last_word_counts():
    told = records(own_times(6, 3))
    aligner = Aligner(3)
    for ranks in ([0], [1, 1], [2, 0]):
        for rank in ranks:
            aligner.add(rank, told[rank][:4])
        taken = aligner.pop_complete()
    told[2][5].samples = 1
    aligner.add(2, [*told[2][4:], told[2][5]])
    aligner.add(0, told[0][3:])
    assert [numbers(taken), numbers(aligner.pop_complete())] == [[2, 3, 4, 5], []]
    aligner.add(1, told[1][4:])
    (rest,) = aligner.pop_complete()
    assert steps_of(rest.table.ravel()) == [told[rank][place] for place in (4, 5) for rank in range(3)]


def test_the_world_goes_on_without_a_rank_that_tells_no_more():
    count = 400
    told = records(own_times(count, 3))
    assert told[0][-1].end_us - told[0][0].end_us > 2 * MAX_LAG_US
    aligner = Aligner(3)
    for rank in (0, 1):
        aligner.add(rank, told[rank])
    aligner.add(2, told[2][:10])
    taken = aligner.pop_complete()
    assert [rows.ranks for rows in taken] == [(0, 1, 2), (0, 1)]
    assert len(taken[1]) > MAX_PARTIAL_STEPS
    assert numbers(taken) == sorted(numbers(taken))


def test_what_is_left_at_the_end_is_handed_out_where_every_rank_told_of_it():
    told = records(own_times(10, 2))
    aligner = Aligner(2)
    aligner.add(0, told[0])
    aligner.add(1, told[1][:9])
    assert numbers(aligner.pop_complete(final=True)) == list(range(2, 11))


def test_the_window_goes_back_so_many_seconds_but_never_below_a_few_steps():
    told = records(own_times(200, 1))
    window = Window(100)
    aligner = Aligner(1)
    aligner.add(0, told[0])
    for rows in aligner.pop_complete():
        window.append(split_waits(rows))
    length = told[0][0].length_us / 1e6
    assert len(window.as_world(seconds=50 * length)) in {50, 51}
    assert len(window.as_world(seconds=0.0, at_least=20)) == 20
