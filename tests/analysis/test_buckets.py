"""Bucket times and bus bandwidth from made-up steps whose right answer is known."""

import pytest

from ddpmon.analysis.steps.buckets import bucket_times
from ddpmon.messages import Bucket, Layout, Step

MB = 1_000_000
LAYOUTS = {rank: {1: Layout(1, 0, 0, 8 * MB, ["b"]), 2: Layout(2, 0, 1, 2 * MB, ["a"])} for rank in range(4)}


def step(number, launches, *, end=40_000, length=50_000, layouts=(1, 2)):
    """All buckets are done 5 ms apart, the last one at `end`."""
    last = len(launches) - 1
    buckets = [
        Bucket(layout, launch, end - 5_000 * (last - i))
        for i, (layout, launch) in enumerate(zip(layouts, launches, strict=True))
    ]
    return Step(number, 10**9 + number * length, length, 0, 0, 0, 0, 0, buckets=buckets)


def test_a_bucket_is_told_by_its_mean_times_and_by_what_it_took_where_nobody_was_waited_for():
    rows = [{0: step(n, (10_000, 20_000)), 1: step(n, (27_000, 38_000))} for n in (2, 3)]
    first, second = bucket_times(rows, LAYOUTS).buckets
    assert (first.index, first.payload_bytes, first.parameters) == (0, 8 * MB, ["b"])
    assert (first.launch_ms, first.end_ms, first.transfer_ms) == (18.5, 35.0, 8.0)
    assert (second.launch_ms, second.end_ms, second.transfer_ms) == (29.0, 40.0, 2.0)


def test_bus_bandwidth_is_of_the_rank_that_arrived_last():
    """10 MB in 13 ms (first bucket handed over to last one done) on the late rank, four ranks: x 2 * 3/4."""
    rows = [{0: step(2, (10_000, 20_000)), **{rank: step(2, (27_000, 38_000)) for rank in (1, 2, 3)}}]
    assert bucket_times(rows, LAYOUTS).bus_bandwidth_gb_s == pytest.approx(10e6 / 13e-3 * 1.5 / 1e9)


def test_clocks_that_start_a_step_at_different_moments_are_compared_from_its_end():
    """Rank 1's record begins 20 ms later: its small launch times are the late ones."""
    late = step(2, (7_000, 18_000), end=20_000, length=30_000)
    rows = [{0: step(2, (10_000, 20_000)), 1: late}]
    assert bucket_times(rows, LAYOUTS).bus_bandwidth_gb_s == pytest.approx(10e6 / 13e-3 * 1.0 / 1e9)


def test_steps_before_the_buckets_were_laid_out_anew_do_not_count():
    old = {rank: {**known, 3: Layout(3, 0, 0, 10 * MB, ["a", "b"])} for rank, known in LAYOUTS.items()}
    rows = [{0: step(2, (1_000,), layouts=(3,))}, {0: step(3, (10_000, 20_000))}]
    first, _ = bucket_times(rows, old).buckets
    assert (first.launch_ms, first.parameters) == (10.0, ["b"])


def test_without_buckets_or_peers_nothing_is_claimed():
    nothing = bucket_times([{0: Step(2, 10**9, 50_000, 0, 0, 0, 0, 0)}], {})
    assert (nothing.buckets, nothing.bus_bandwidth_gb_s) == ([], None)
    assert bucket_times([{0: step(2, (1_000, 2_000))}], LAYOUTS).bus_bandwidth_gb_s is None
