"""Test when the first step stands still, and when a start is only slow."""

from dataclasses import replace

import msgspec
import pytest

from ddpmon.analysis.processes.starts import SHARED_S, START_PROGRESS_S, Starting, shared_line, start_still_s
from ddpmon.analysis.run_state import Signs, derive_state
from ddpmon.messages import Collective, Stack


def at(rank, line, blocked=None, issued=0):
    collective = Collective(blocked) if blocked else None
    return Stack(rank, 1, 9_000_000, 0, 1_000_000, 4, [line], 0, collective, bool(blocked), {"0": issued})


def waits(rank, still_s=40.0, collective="barrier", **more):
    """Busy or not: waiting for a GPU keeps a core busy."""
    return Starting(still_s, stack=at(rank, "train.py:9 main", collective, issued=1), **more)


def works(rank, still_s=30.0, idle=True, **more):
    return Starting(still_s, idle, stack=at(rank, "train.py:5 load"), **more)


def still(*ranks, world_size=None):
    return start_still_s(dict(enumerate(ranks)), world_size or len(ranks))


RESTS = dict(idle=True, has_model=True)
OTHER = replace(waits(1, collective="broadcast"), stack=at(1, "train.py:7 main", "broadcast", issued=0))


@pytest.mark.parametrize(
    ("ranks", "seconds", "why"),
    [
        ([waits(0), works(1), waits(2)], 30.0, "they wait for one that does nothing"),
        ([waits(0), Starting(35.0, idle=True)], 35.0, "for one that is not heard and does nothing"),
        ([waits(0), Starting(0.0, gone=True)], 40.0, "for one that left"),
        ([waits(0), OTHER, waits(2)], 40.0, "for one in another collective, however busily it waits"),
        ([waits(0, **RESTS), waits(1, **RESTS)], 40.0, "nobody is missing, but models are there and all rest"),
        ([works(0, has_model=True), works(1, has_model=True)], 30.0, "the same outside of a collective"),
        ([works(0), works(1, 50.0)], SHARED_S, "all rest at one line, as at a lock file that a killed run has left"),
    ],
)
def test_ranks_that_all_wait_or_rest_stand_still(ranks, seconds, why):
    assert still(*ranks) == seconds, why


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([waits(0), works(1, idle=False)], "it computes, downloads or compiles"),
        ([waits(0), works(1, still_s=START_PROGRESS_S.enter - 1)], "its line changed a moment ago"),
        ([waits(0, still_s=START_PROGRESS_S.enter - 1), works(1)], "the other arrived a moment ago"),
        ([waits(0), Starting(40.0, idle=False)], "it cannot say where it is, but is busy"),
        ([works(0), works(1, SHARED_S - 1)], "nobody waits, and there is no model yet"),
        ([works(0), works(1, idle=False)], "one works at the line where the other rests"),
        ([works(0), Starting(40.0, True, stack=at(1, "train.py:6 load"))], "they are in different places"),
        ([waits(0, idle=True), waits(1, idle=True)], "all wait for the backend, and there is no model yet"),
        ([waits(0, has_model=True), waits(1, has_model=True)], "all wait for the backend, which is busy"),
        ([Starting(0.0, gone=True), Starting(0.0, gone=True)], "all have left"),
    ],
)
def test_a_slow_start_is_no_standstill(ranks, why):
    assert still(*ranks) is None, why


def test_a_world_that_is_not_complete_is_waited_for():
    assert still(waits(0), works(1), world_size=3) is None


def test_ranks_that_all_wait_to_make_a_process_group_stand_still():
    """After a restart each may wait for peers of another attempt, with a timeout of half an hour."""
    meets = dict(collective="init_process_group", idle=True)
    assert still(waits(0, **meets), waits(1, 50.0, **meets)) == 40.0
    assert still(waits(0, **meets), waits(1, **meets | {"idle": False})) is None
    assert still(waits(0, **meets), waits(1, **meets), world_size=3) is None


def test_the_line_that_all_ranks_share_is_told_though_they_work():
    busy = dict(idle=False, still_s=SHARED_S)
    assert shared_line({0: works(0, **busy), 1: works(1, **busy)}, 2) == ("train.py:5 load", SHARED_S)
    assert shared_line({0: works(0, **busy), 1: works(1, SHARED_S - 1)}, 2) is None
    assert shared_line({0: works(0, **busy), 1: waits(1)}, 2) is None
    assert shared_line({0: works(0, **busy)}, 2) is None


def test_a_library_that_polls_in_the_shared_line_does_not_end_the_standstill():
    def polls(rank, inner):
        stack = msgspec.structs.replace(at(rank, ""), frames=[f"filelock/{inner}", "train.py:5 load"], own=1)
        return Starting(SHARED_S, True, stack=stack)

    here, there = polls(0, "_acquire.py:177 acquire"), polls(1, "_soft.py:31 _acquire")
    assert still(here, there) == SHARED_S
    assert shared_line({0: here, 1: there}, 2) == ("train.py:5 load", SHARED_S)
    assert shared_line({0: here, 1: here}, 2) == ("_acquire.py:177, called in train.py:5 load", SHARED_S)


def test_a_start_that_stands_still_is_a_stall_until_it_comes_on():
    assert derive_state(Signs("running", start_still_s=16.0)) == "stalled"
    assert derive_state(Signs("running", start_still_s=16.0, all_left=True)) == "waiting"
    assert derive_state(Signs("running")) == "waiting"
    assert derive_state(Signs("failed", start_still_s=16.0)) == "failed"
