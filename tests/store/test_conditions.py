"""Test what the store makes of a rank's samples, as evidence for why it is late."""

from collections import deque

import pytest
from msgspec.structs import replace

from ddpmon.messages import PROTOCOL, CpuRivals, Hello, Sample, Setup
from ddpmon.store.processes import MAX_SAMPLES, RankProcess
from ddpmon.store.samples import RecentSamples

SECOND = 1_000_000


def process(samples, trains_since_us=10 * SECOND):
    hello = Hello(PROTOCOL, "run", 1, 1, 4, 0, "there", 123, 4, cores=8)
    return RankProcess(1, 0, hello, samples=samples, trains_since_us=trains_since_us)


def of(*args, **kwargs):
    return RecentSamples().summary_of(process(*args, **kwargs)).conditions


def samples(count, first=20, **values):
    return [Sample((first + i) * SECOND, **values) for i in range(count)]


def test_they_are_means_of_the_seconds_of_training():
    before = samples(5, first=1, gpu_clock_mhz=300.0, read_bytes_per_s=1e9, gpu_throttled="thermal")
    during = samples(4, gpu_clock_mhz=1700.0, read_bytes_per_s=2e6) + samples(4, 24, gpu_clock_mhz=1500.0)
    made = of(before + during)
    assert (made.rank, made.host) == (1, "there")
    assert made.gpu_clock_mhz == pytest.approx(1600)
    assert made.read_bytes_per_s == pytest.approx(2e6)
    assert made.major_faults_per_s is None
    assert made.means == {"gpu_clock": pytest.approx(1600), "read": pytest.approx(2e6)}
    assert of(before + samples(4, gpu_power_w=300.0) + samples(4, 24, gpu_power_w=400.0)).means == {"gpu_power": 350.0}
    assert made.gpu_throttled == ()


@pytest.mark.parametrize(("held", "reason"), [(2, ()), (3, ("thermal", "power cap")), (6, ("thermal", "power cap"))])
def test_clocks_are_held_down_if_they_are_for_half_of_the_time(held, reason):
    made = of(samples(held, gpu_throttled="thermal, power cap") + samples(6 - held, 30, gpu_throttled=""))
    assert made.gpu_throttled == reason


def test_the_loader_that_training_reads_is_the_one_that_most_seconds_tell_of():
    made = of(samples(5, loader_workers=4, loader_pinned=False) + samples(2, 30, loader_workers=0, loader_pinned=True))
    assert (made.cores, made.loader_workers, made.loader_pinned) == (8, 4, False)
    made = of(samples(5))
    assert (made.loader_workers, made.loader_pinned) == (None, None)


def test_before_the_first_step_nothing_is_known():
    made = of(samples(5, gpu_clock_mhz=1700.0, gpu_throttled="thermal"), trains_since_us=None)
    assert (made.gpu_clock_mhz, made.gpu_throttled) == (None, ())


def test_a_new_sample_is_worked_in_and_an_old_one_not_again():
    known, rank = RecentSamples(), process(samples(4, starved_share=0.5, rss_bytes=100))
    first = known.summary_of(rank)
    assert (first.conditions.starved, first.memory.rss_bytes) == ([0.5] * 4, 100)
    assert known.summary_of(rank) is first
    rank.samples.append(Sample(30 * SECOND, starved_share=0.1))
    assert known.summary_of(rank).conditions.starved == [0.5] * 4 + [0.1]


def test_a_rank_without_samples_has_no_memory_to_tell_of():
    assert RecentSamples().summary_of(process([])).memory is None


def test_memory_that_a_rank_gives_up_as_it_leaves_does_not_count():
    rank = process(samples(4, rss_bytes=100) + samples(1, 24, rss_bytes=5))
    rank.last_end_us = 23 * SECOND
    assert RecentSamples().summary_of(rank).memory.rss_bytes == 5, "it may come on after a pause"
    rank.left = True
    assert RecentSamples().summary_of(rank).memory.rss_bytes == 100


def test_memory_that_grows_is_seen_over_more_samples_than_are_kept():
    known, rank = RecentSamples(), process(samples(0))
    rank.samples = deque(maxlen=MAX_SAMPLES)
    for second in range(1, 400):
        sizes = {"rss_bytes": 1000 * second, "gpu_reserved_bytes": 7000, "gpu_alloc_retries": max(second - 393, 0)}
        rank.samples.append(Sample(second * SECOND, **sizes))
        told = known.summary_of(rank).memory
    assert list(told.trends) == ["rss_bytes"]
    assert told.trends["rss_bytes"].per_s == pytest.approx(1000)
    assert (told.trained_s, told.retry_seconds) == (385.0, 2), "of the last summary, which holds for five seconds"


def test_conditions_before_and_after_a_moment_are_kept_when_their_samples_are_gone():
    known, rank = RecentSamples(), process(samples(0))
    rank.samples = deque(maxlen=MAX_SAMPLES)
    for second in range(20, 320):
        rank.samples.append(Sample(second * SECOND, gpu_clock_mhz=1700.0 if second < 65 else 1500.0))
        rank.last_end_us = second * SECOND
        before, after = known.summary_of(rank).conditions.around(*[(second - 64) * SECOND] * 2)
        if second < 22:
            assert (before, after) == (None, None)
        if second >= 75:
            assert (before.gpu_clock_mhz, after.gpu_clock_mhz) == (1700.0, pytest.approx(1500.0))
    assert known.summary_of(rank).conditions.around(300 * SECOND, 0)[0] is None


def test_what_takes_the_cores_is_what_the_rank_had_told_by_then():
    rank = process(samples(4))
    for second, told in ((30, CpuRivals([], 2.0, 0.3)), (40, CpuRivals([], 2.0, 0.5))):
        rank.samples.extend(samples(2, first=second - 1))
        rank.hello = replace(rank.hello, cpu_rivals=told, setup=Setup(cores=[second]))
        rank.note_cores()
        rank.note_cores()
    known = [rank.cores_until(second * SECOND) for second in (29, 30, 39, 40, 50)]
    assert [rivals.throttled_share for rivals, _ in known] == [0.0, 0.3, 0.3, 0.5, 0.5]
    assert [sorted(cores) for _, cores in known] == [[], [30], [30], [40], [40]]
    assert len(rank.on_cores) == 2
    assert RecentSamples().summary_of(rank).conditions.cpu_rivals.throttled_share == 0.5
