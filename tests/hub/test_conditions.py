"""What the store makes of a rank's samples, as evidence for why it is late."""

import pytest

from ddpmon.hub.processes import RankProcess
from ddpmon.hub.samples import conditions
from ddpmon.messages import PROTOCOL, Hello, Sample

SECOND = 1_000_000


def process(samples, trains_since_us=10 * SECOND):
    hello = Hello(PROTOCOL, "run", 1, 1, 4, 0, "there", 123, 4)
    return RankProcess(1, 0, hello, samples=samples, trains_since_us=trains_since_us)


def samples(count, first=20, **values):
    return [Sample((first + i) * SECOND, **values) for i in range(count)]


def test_they_are_means_of_the_seconds_of_training():
    before = samples(5, first=1, gpu_clock_mhz=300.0, read_bytes_per_s=1e9, gpu_throttled="thermal")
    during = samples(4, gpu_clock_mhz=1700.0, read_bytes_per_s=2e6) + samples(4, 24, gpu_clock_mhz=1500.0)
    made = conditions(process(before + during))
    assert (made.rank, made.host) == (1, "there")
    assert made.gpu_clock_mhz == pytest.approx(1600)
    assert made.read_bytes_per_s == pytest.approx(2e6)
    assert made.major_faults_per_s is None
    assert made.gpu_throttled == ""


@pytest.mark.parametrize(("held", "reason"), [(2, ""), (3, "thermal"), (6, "thermal")])
def test_clocks_are_held_down_if_they_are_for_half_of_the_time(held, reason):
    made = conditions(process(samples(held, gpu_throttled="thermal") + samples(6 - held, 30, gpu_throttled="")))
    assert made.gpu_throttled == reason


def test_before_the_first_step_nothing_is_known():
    made = conditions(process(samples(5, gpu_clock_mhz=1700.0, gpu_throttled="thermal"), trains_since_us=None))
    assert (made.gpu_clock_mhz, made.gpu_throttled) == (None, "")
