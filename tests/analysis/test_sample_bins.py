"""Test what each rank's process and GPU did, second by second."""

import pytest

from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION
from ddpmon.analysis.over_time.sample_bins import SampleBins
from ddpmon.messages import Sample

SECOND = 1_000_000
FULL = {"gpu": 100.0, "cpu": 100.0}


def gpus(*percents, first=1_000):
    """One sample a second; None: there is none."""
    return [
        Sample((first + place) * SECOND, gpu_percent=percent)
        for place, percent in enumerate(percents)
        if percent != "gap"
    ]


def cells(sampled, *ranks, name="gpu", seconds=1, columns=8):
    return {each.rank: list(each.cells) for each in sampled.courses(ranks, [name], seconds, columns, FULL)}


def test_a_second_is_a_column_from_nothing_to_the_whole_scale():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(0.0, 100.0, 50.0))
    assert cells(sampled, 0) == {0: [0, 0, 0, 0, 0, 1, 254, 127]}
    (course,) = sampled.courses([0], ["gpu"], 1, 3, FULL)
    assert (course.name, course.low, course.high) == ("gpu", 0.0, 100.0)


def test_another_hosts_clock_does_not_matter():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(100.0, 100.0))
    sampled.add(8, "b", gpus(100.0, 100.0, first=77))
    assert cells(sampled, 0, 8, columns=3) == {0: [0, 254, 254], 8: [0, 254, 254]}


def test_what_ranks_had_stays_when_more_come_and_hosts_of_any_age_fill_the_same_slots():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(*[40.0] * 5, *[100.0] * 3))
    before = cells(sampled, 0)
    for rank in range(1, 200):
        sampled.add(rank, f"host{rank}", gpus(*[50.0] * 4, first=977 * rank))
    assert cells(sampled, 0) == before
    assert cells(sampled, 1, 199) == {rank: [0, 0, 0, 0, *[127] * 4] for rank in (1, 199)}


def test_a_sample_that_came_a_little_late_leaves_no_gap_and_a_silence_does():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(100.0, "gap", 100.0, "gap", "gap", 100.0))
    assert cells(sampled, 0, columns=6) == {0: [254, 254, 254, 0, 0, 254]}


def test_wide_columns_are_means_and_reach_back_further():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(*[0.0, 100.0] * 400, first=1_600))
    assert cells(sampled, 0, seconds=16, columns=50)[0] == [127] * 50
    assert set(cells(sampled, 0, seconds=1, columns=BINS_PER_RESOLUTION)[0]) == {1, 254}


def test_samples_that_were_taken_before_count_once():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(*[100.0] * 16, first=1_600))
    sampled.add(0, "a", gpus(*[0.0] * 16, first=1_600))
    assert cells(sampled, 0, seconds=16, columns=1) == {0: [254]}


def test_what_nobody_measured_has_no_course_and_a_rank_on_another_host_begins_anew():
    sampled = SampleBins()
    sampled.add(0, "a", gpus(100.0, 100.0))
    assert cells(sampled, 0, name="rss") == {}
    assert cells(sampled, 5) == {}
    sampled.add(0, "b", gpus(100.0, first=3))
    assert cells(sampled, 0, columns=2) == {0: [0, 254]}


def test_many_ranks_side_by_side_are_as_each_would_be_alone():
    together, percents = SampleBins(), {rank: [rank % 100, 50.0 + rank % 7, None, 10.0] * 9 for rank in range(300)}
    for second in range(36):
        for rank in percents:
            together.add(rank, f"h{rank // 8}", gpus(percents[rank][second], first=1_000 + second))
    for rank in (0, 1, 63, 64, 299):
        alone = SampleBins()
        alone.add(rank, "a", gpus(*percents[rank]))
        for seconds, columns in ((1, 40), (16, 3)):
            there = cells(together, rank, seconds=seconds, columns=columns)
            assert there == cells(alone, rank, seconds=seconds, columns=columns)
            assert any(there[rank])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_is_no_number_is_not_known(value):
    sampled = SampleBins()
    sampled.add(0, "a", gpus(value, 100.0))
    assert cells(sampled, 0, columns=2) == {0: [0, 254]}
