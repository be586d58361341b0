"""Ranks that were entered at different moments agree on the step from which they count."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.distributed import HashStore

from ddpmon.probe import run_settings
from ddpmon.probe.common_start import MAX_WAITING_NOTES, NOT_IN_STEP, CommonStart
from ddpmon.probe.identity import Identity


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        run_settings.override_environment(run_settings.RunSettings("test", "", folder, attached=True))
        yield Path(folder)
        run_settings.override_environment(None)


def rank(number: int, first: int, restart: int = 0) -> tuple[CommonStart, Identity]:
    start, identity = CommonStart(2), Identity("test")
    identity.set_facts(rank=number, world_size=2, restart=restart)
    start.first = first
    return start, identity


@pytest.mark.usefixtures("folder")
def test_steps_count_from_the_latest_place_at_which_a_rank_first_synchronised() -> None:
    early, late = rank(0, 700), rank(1, 712)
    assert early[0].agreed_start(early[1], 3) is None
    assert late[0].agreed_start(late[1], 0) == 712
    assert early[0].agreed_start(early[1], 90) == 712


@pytest.mark.usefixtures("folder")
def test_ranks_that_were_started_again_do_not_take_the_places_of_those_before() -> None:
    for start, identity in (rank(0, 700), rank(1, 712)):
        start.agreed_start(identity, 0)
    early, late = rank(0, 4, restart=1), rank(1, 6, restart=1)
    assert early[0].agreed_start(early[1], 0) is None
    assert late[0].agreed_start(late[1], 0) == early[0].agreed_start(early[1], 0) == 6


@pytest.mark.usefixtures("folder")
def test_a_rank_that_gets_far_ahead_of_the_others_begins_alone_and_says_so() -> None:
    start, identity = rank(0, 700)
    assert start.agreed_start(identity, MAX_WAITING_NOTES + 1) == 700
    assert identity.facts.notes == [NOT_IN_STEP]


def waits(*answers: bool) -> Callable[[float], bool]:
    given = iter(answers)
    return lambda _: next(given)


def test_ranks_of_other_machines_begin_where_a_step_of_rank_0_ended() -> None:
    store = HashStore()
    first, other = Identity("test"), Identity("test")
    other.set_facts(rank=1, world_size=2)
    told, start = CommonStart(1, machines=True), CommonStart(1, machines=True)
    told.first, start.first = 700, 712
    assert told.agreed_start(first, 0) == 700
    for place in ((708, 5, 4), (720, 11, 10)):
        told.place = place
        for one, identity in ((told, first), (start, other)):
            one.exchange_places(store, identity, waits(False, True))
        assert start.place == place
        begins = start.agreed_start(other, 0)
        assert begins == (None if place[0] < 712 else 720)
    assert (start.parts, start.steps, other.facts.steps_before) == (11, 10, 10)
