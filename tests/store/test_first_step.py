"""The first step is shown as long as it is the only one, and no mean tells of it."""

import numpy as np
import pytest

from ddpmon.store.first_step import FirstStep
from tests.worlds import own_times, records, rows

OWN = own_times(4, 2)
OWN[0] *= 50
HOSTS = {0: "here", 1: "here"}


def by_records(first):
    told = records(OWN, first=1)
    yield 1, [step.step for step in first.keep_first_step(0, told[0])]
    yield 2, [step.step for step in first.keep_first_step(1, told[1])]


def by_rows(first):
    table = rows(OWN, first=1)
    for rank in range(2):
        ranks, rest = first.take_rows(np.full(4, rank), table[:, rank])
        assert ranks.tolist() == [rank] * len(rest)
        yield rank + 1, rest["step"].tolist()


@pytest.mark.parametrize("told", [by_records, by_rows])
def test_it_is_taken_out_and_shown_once_every_rank_told_of_it(told):
    first = FirstStep()
    for heard, rest in told(first):
        assert rest == [2, 3, 4]
        world = first.world(2, HOSTS, "here", set())
        assert (world is None) == (heard < 2)
    assert world.step.tolist() == [1]
    assert world.own_ms == pytest.approx(OWN[:1].sum(axis=2), abs=0.01)


def test_a_rank_that_is_watched_from_a_later_step_on_has_none():
    first = FirstStep()
    told = records(OWN, first=2)
    assert [first.keep_first_step(rank, told[rank]) for rank in (0, 1)] == [told[0], told[1]]
    assert first.world(2, HOSTS, "here", set()) is None
