"""Memory that grows is told with its pace and with when it is used up; what comes and goes is not."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.statistics.trend import Floors
from ddpmon.analysis.words import time_range
from tests.findings import of_kinds

MIB, GIB = 1 << 20, 1 << 30
LEAK = 1000 + 2.0 * np.arange(40)


def trend(sizes_mib, every_s=1.0):
    floors = Floors()
    for place, size in enumerate(sizes_mib):
        floors.add(place * every_s, float(size) * MIB)
    return floors.trend()


def memory(rank, size_mib=1000, trained_s=100.0, trends=None, **sizes):
    found = {name: told for name, sizes_mib in (trends or {}).items() if (told := trend(sizes_mib))}
    return Memory(rank, "here", trained_s, rss_bytes=int(size_mib * MIB), trends=found, **sizes)


def found(kind, *memories):
    told = of_kinds(kind, memory=memories, world_size=4)
    assert all(len(one.text) <= 76 and one.advice for one in told)
    return told


def test_a_trend_has_the_pace_with_an_interval_around_it():
    rng = np.random.default_rng(0)
    told = trend(1000 + np.cumsum(2 + rng.normal(0, 1, 400)))
    assert told.low_per_s < 2 * MIB < told.high_per_s
    assert 0 < told.low_per_s <= told.per_s <= told.high_per_s < 4 * MIB
    assert trend(LEAK).per_s == pytest.approx(2 * MIB)


def test_a_slow_leak_is_seen_in_minutes_and_its_end_too():
    slow = 1000 + 0.1 * np.arange(3600)
    assert trend(slow[:60]) is None, "0.5% in half a minute"
    assert trend(slow[:420]).per_s == pytest.approx(0.1 * MIB)
    assert trend(slow).per_s == pytest.approx(0.1 * MIB)
    assert trend([*slow, *[slow[-1]] * 1300]) is None


@pytest.mark.parametrize("stretch", [40, 400])
def test_noise_steps_and_walks_are_no_trend(stretch):
    """Among 400 series without a trend at most four may show one: the interval is meant to hold 98%."""
    rng = np.random.default_rng(1)
    series = [
        *(1000 + rng.normal(0, 100, (100, stretch))),
        *(1000 + np.cumsum(rng.normal(0, 5, (100, stretch)), axis=1)),
        *(np.where(np.arange(stretch) < rng.integers(1, stretch), 1000, 1300) for _ in range(100)),
        *(1000 + 200 * np.sin(np.arange(stretch) / rng.uniform(0.5, 5)) for _ in range(100)),
    ]
    assert sum(trend(one) is not None for one in series) <= 4
    assert trend(1000 + 500 * (1 - np.exp(-np.arange(stretch) / 8))) is None, "an allocator that levels off"


def test_what_is_not_measured_for_a_while_is_no_trend():
    floors = Floors()
    for second in [*range(20), *range(100, 120)]:
        floors.add(second, (1000 + 2 * second) * MIB)
    assert floors.trend() is None


def test_memory_that_grows_all_along_is_told_with_its_pace_and_when_it_is_full():
    (told,) = found("memory_growth", memory(1, trends={"rss_bytes": LEAK}), memory(0, left_bytes=6 * GIB))
    assert (told.severity, told.ranks) == ("warn", [1])
    assert told.text == "rank 1's memory grows 120 MiB a minute, 1.0 GiB now; full in about 51 min"
    assert "the memory is full in about 51 min" in told.advice
    assert ".detach()" in told.advice


def test_ranks_of_a_host_fill_it_together():
    grown = [memory(rank, left_bytes=6 * GIB, trends={"rss_bytes": LEAK}) for rank in range(3)]
    (told,) = found("memory_growth", *grown)
    assert told.evidence["full_in_s"] == [1024, 1024]
    assert told.ranks == [0, 1, 2]


def test_a_leak_that_fills_the_host_in_days_is_a_hint():
    slow = {"rss_bytes": 1000 + 0.1 * np.arange(400)}
    (told,) = found("memory_growth", memory(1, left_bytes=60 * GIB, trends=slow))
    assert (told.severity, told.evidence["full_in_s"]) == ("info", [pytest.approx(614_400, rel=0.01)] * 2)
    (told,) = found("memory_growth", memory(1, left_bytes=3 * GIB, trends=slow))
    assert told.severity == "warn"


def test_no_time_is_told_where_the_trend_is_uncertain():
    rng = np.random.default_rng(3)
    uneven = next(
        one
        for one in (1000 + np.cumsum(rng.exponential(2, 40)) for _ in range(200))
        if (it := trend(one)) and it.high_per_s > 3.5 * it.low_per_s
    )
    (told,) = found("memory_growth", memory(1, left_bytes=GIB, trends={"rss_bytes": uneven}))
    assert "full in" not in told.text
    assert "full_in_s" not in told.evidence


def test_workers_that_copy_what_they_share_are_told_apart_from_their_rank():
    (told,) = found("memory_growth", memory(1, worker_bytes=4 * GIB, trends={"worker_bytes": 4 * LEAK}))
    assert told.text == "rank 1's DataLoader workers grow 480 MiB a minute, 4.0 GiB now"
    assert "numpy" in told.advice
    flat = {"rss_bytes": [1000.0] * 40, "worker_bytes": [4000.0] * 40}
    assert found("memory_growth", memory(1, worker_bytes=4 * GIB, trends=flat)) == []


def test_a_process_that_has_just_begun_may_grow():
    assert found("memory_growth", memory(0, trained_s=20.0, trends={"rss_bytes": LEAK})) == []


def test_growing_gpu_memory_is_told_by_torchs_own_count_where_there_is_one():
    sizes = {"gpu_total_bytes": 80 * GIB, "gpu_used_bytes": 68 * GIB, "gpu_allocated_bytes": 50 * GIB}
    grows = {"gpu_reserved_bytes": LEAK, "gpu_used_bytes": 2 * LEAK}
    (told,) = found("gpu_memory_growth", memory(2, gpu_reserved_bytes=60 * GIB, **sizes, trends=grows))
    assert told.text == "rank 2's GPU memory grows 120 MiB a minute; full in about 102 min"
    assert "tensors use 50.0 GiB" in told.advice
    (told,) = found("gpu_memory_growth", memory(2, **sizes, trends={"gpu_used_bytes": LEAK}))
    assert told.evidence["gpu_used_bytes"] == 68 * GIB
    steady = memory(2, gpu_reserved_bytes=60 * GIB, **sizes, trends={"gpu_used_bytes": LEAK})
    assert found("gpu_memory_growth", steady) == [], "another program's"


@pytest.mark.parametrize(("seconds", "told"), [(0, False), (2, False), (3, True), (30, True)])
def test_an_allocator_that_gives_its_cache_back_again_and_again_is_told(seconds, told):
    sizes = {"gpu_reserved_bytes": 78 * GIB, "gpu_allocated_bytes": 60 * GIB}
    kinds = found("allocator_retries", memory(3, retry_seconds=seconds, **sizes), memory(0))
    assert [one.severity for one in kinds] == ["warn"] * told
    if told:
        assert kinds[0].text == f"rank 3's GPU memory is short: torch released its cache in {seconds} of 30 s"
        assert "expandable_segments" in kinds[0].advice
    assert found("allocator_retries", memory(3, trained_s=20, retry_seconds=seconds)) == []


@pytest.mark.parametrize(("used", "severity"), [(90, None), (96, "info"), (99, "warn")])
def test_a_gpu_that_is_nearly_full_is_told(used, severity):
    told = found("gpu_memory", Memory(0, gpu_used_bytes=used * MIB, gpu_total_bytes=100 * MIB))
    assert [one.severity for one in told] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(40, 90, "40 to 90 s"), (2100, 3000, "35 to 50 min"), (7300, 7400, "about 2 h"), (3e5, 1e6, "3 to 12 days")],
)
def test_an_uncertain_time_is_told_in_one_unit(low, high, words):
    assert time_range(low, high) == words
