"""Test which steps the means of a live view cover."""

import pytest

from ddpmon.analysis.findings import since_change
from ddpmon.analysis.steps.summary import summarise
from ddpmon.messages import Finding
from tests.worlds import own_times, world_with


def late(since, until=None, kind="straggler"):
    return Finding(kind, "warn", "rank 1 is slow", [1], since_step=since, until_step=until)


@pytest.fixture(scope="module")
def world():
    own = own_times(200, 4, noise=0.02)
    own[100:150, 1, 0] += 20
    return world_with(own)


@pytest.mark.parametrize(
    ("found", "first"),
    [
        ([], 2),
        ([late(102)], 102),
        ([late(102), late(140)], 140),
        ([late(102, 151)], 152),
        ([late(102, 151, "load_imbalance"), late(160)], 160),
        ([late(1)], 2),  # before the window began
        ([late(199)], 190),  # too few steps to tell of
        ([late(102, kind="periodic_straggler")], 2),  # in all steps of the window, now and then
    ],
)
def test_they_begin_with_the_last_change(world, found, first):
    assert since_change(world, found).step[0] == first


def test_means_then_say_what_the_finding_says(world):
    told = summarise(since_change(world.steps_between(0, 130), [late(102)]))
    assert told.over_median[1] == pytest.approx(20 / 27.4, abs=0.03)
    assert abs(summarise(since_change(world, [late(102, 151)])).over_median).max() < 0.02


def test_a_window_of_few_steps_is_taken_whole(world):
    assert len(since_change(world.last_steps(5), [late(199)])) == 5
