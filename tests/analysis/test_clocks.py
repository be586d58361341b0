"""Clocks of several hosts that nobody synchronised, brought to one by the ends of gradient synchronisations."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split_waits
from tests.worlds import own_times, records, world_of


def by_clock(steps, offset_us, drift, noise_us, outliers, seed):
    """The same records told by another clock, each a little late, some very."""
    rng = np.random.default_rng(seed)
    told = []
    for step in steps:
        late = rng.exponential(noise_us) + (rng.random() < outliers) * rng.uniform(1e4, 1e6)
        end = round(offset_us + (step.end_us + late) * (1 + drift))
        told.append(msgspec.structs.replace(step, end_us=end))
    return told


def rows_of(told):
    return Rows(tuple(told), [list(row) for row in zip(*told.values(), strict=True)])


def test_waits_are_those_of_a_shared_clock():
    own = own_times(300, 4, noise=0.05)
    own[:, 3, 1] += 12
    told = records(own)
    shared = world_of(told)
    apart = told | {rank: by_clock(told[rank], 86_400_000_000, 80e-6, 20, 0.02, rank) for rank in (2, 3)}
    rows = rows_of(apart)
    world = split_waits(rows, Clocks("a").offsets_us(rows, {0: "a", 1: "a", 2: "b", 3: "b"}))
    assert np.quantile(np.abs(world.wait_ms - shared.wait_ms), 0.9) < 0.3
    assert (world.critical == 3).mean() > 0.95
    assert world.end_us[-1] == pytest.approx(shared.end_us[-1], abs=2000)


def test_ranks_of_one_host_need_no_correction():
    rows = rows_of(records(own_times(20, 2)))
    assert Clocks("a").offsets_us(rows, {0: "b", 1: "b"}) is None


def test_a_clock_that_stood_still_for_a_while_is_learned_anew():
    told = records(own_times(300, 2))
    later = [msgspec.structs.replace(step, end_us=step.end_us - 30_000_000) for step in told[1][200:]]
    clocks, hosts = Clocks("a"), {0: "a", 1: "b"}
    rows = rows_of({0: told[0], 1: told[1][:200] + later})
    offsets = np.concatenate([clocks.offsets_us(rows.steps_at([place]), hosts) for place in range(len(rows))])
    assert abs(offsets[199, 1]) < 100
    assert abs(offsets[220, 1] - 30_000_000) < 100


def test_steps_without_a_gradient_synchronisation_teach_nothing():
    told = records(own_times(100, 2))
    for rank in told:
        for step in told[rank][::2]:
            step.syncs = []
    told[1] = by_clock(told[1], 5_000_000, 0.0, 0, 0, 0)
    offsets = Clocks("a").offsets_us(rows_of(told), {0: "a", 1: "b"})
    assert np.abs(offsets[:, 1] + 5_000_000).max() < 100


def test_steps_of_hosts_that_booted_days_apart_are_waited_for():
    """The clock of one is far ahead: that makes no step of the other one too old to wait for."""
    told = records(own_times(40, 2))
    told[1] = by_clock(told[1], 86_400_000_000, 0.0, 0, 0, 0)
    aligner = Aligner(2)
    aligner.add(0, told[0])
    aligner.add(1, told[1][:20])
    (first,) = aligner.pop_complete()
    aligner.add(1, told[1][20:])
    (second,) = aligner.pop_complete()
    assert len(first) == len(second) == 20
    assert aligner.left_out == 0


HOURS_US = 3_600_000_000
AHEAD = {0: "a", 1: "a", 2: "b", 3: "b"}


def learned(told, hosts=None):
    clocks, rows = Clocks("a"), rows_of(told)
    clocks.offsets_us(rows, hosts or AHEAD)
    (agreement,) = clocks.agreements()
    return agreement


def errors_us(agreement, offset_us, ppm, shared, told):
    """Return how far the correction of the latest step is off the true one."""
    end = told[2][-1].end_us - told[2][-1].length_us + told[2][-1].syncs[-1].end_us
    true = shared[2][-1].end_us  # on the reference's clock, less what waking took, which is in both
    shown = offset_us + true * (1 + ppm / 1e6)
    return abs(round(agreement.offset_s * 1e6) - round(true - shown)) - abs(end - shown) * abs(ppm) / 1e6


@settings(max_examples=12, deadline=None)
@given(
    offset_us=st.integers(-9 * HOURS_US, 9 * HOURS_US),
    ppm=st.floats(-100, 100),
    noise_us=st.tuples(st.floats(0, 500), st.floats(0, 500)),
    outliers=st.floats(0, 0.1),
    count=st.integers(64, 600),
    seed=st.integers(0, 99),
)
def test_the_true_offset_lies_within_what_is_told(offset_us, ppm, noise_us, outliers, count, seed):
    """Clocks hours apart that drift, ends that are woken late here and there, on one host more than on the other."""
    told = records(own_times(count, 4, noise=0.1, seed=seed))
    near = {rank: by_clock(told[rank], 0, 0.0, noise_us[0], outliers, seed + rank) for rank in (0, 1)}
    far = {rank: by_clock(told[rank], offset_us, ppm / 1e6, noise_us[1], outliers, seed + rank) for rank in (2, 3)}
    agreement = learned(near | far)
    assert (agreement.host, agreement.reference) == ("b", "a")
    error = errors_us(agreement, offset_us, ppm, told, far)
    assert error <= 1e3 * agreement.within_ms + 5
    assert 1e3 * agreement.within_ms <= 10.001 + 4 * max(noise_us)
    assert agreement.drift_ppm == pytest.approx(-ppm, abs=1 + 2e6 * max(noise_us) / (count * 20_000) + 1e-4 * abs(ppm))


@settings(max_examples=8, deadline=None)
@given(
    later_us=st.integers(-4000, 4000),
    offset_us=st.integers(-9 * HOURS_US, 9 * HOURS_US),
    transfer=st.floats(1.0, 20.0),
    seed=st.integers(0, 99),
)
def test_whatever_link_ends_later_the_true_offset_lies_within_what_is_sure(later_us, offset_us, transfer, seed):
    """All ends of one host come later, by as much as the transfer allows: no end tells that from the clock."""
    late_us = round(np.clip(later_us, -900 * transfer, 900 * transfer))
    told = records(own_times(200, 4, noise=0.1, seed=seed), transfer=transfer)
    hosts = {}
    for rank, steps in told.items():
        offset = offset_us if rank > 1 else 0
        extra = max(0, late_us) if rank > 1 else max(0, -late_us)
        hosts[rank] = [ends_later(step, offset, extra) for step in steps]
    agreement = learned(hosts)
    assert agreement.surely_ms is not None
    assert abs(round(agreement.offset_s * 1e6) + offset_us) <= 1e3 * agreement.surely_ms + 0.001
    assert abs(round(agreement.offset_s * 1e6) + offset_us + late_us) <= 5, "the line takes the ends for one moment"


def ends_later(step, offset_us, extra_us):
    """The step by a clock that is ahead, left later than it was."""
    (sync,) = step.syncs
    later = msgspec.structs.replace(sync, end_us=sync.end_us + extra_us)
    length_us = step.length_us + extra_us
    return msgspec.structs.replace(
        step, end_us=step.end_us + offset_us + extra_us, length_us=length_us, syncs=[later]
    )  # fmt: skip


def test_arrivals_far_before_the_end_leave_more_room_than_those_just_before_it():
    near, far = (learned(records(own_times(100, 4, noise=0.1), transfer=ms)) for ms in (0.5, 12.0))
    assert 0.5 <= near.surely_ms < 12.0 <= far.surely_ms
    assert near.within_ms == far.within_ms == 0.01


def test_hosts_of_which_nothing_was_learned_are_not_told_of():
    clocks = Clocks("a")
    assert clocks.agreements() == []
    clocks.offsets_us(rows_of(records(own_times(20, 2))), {0: "a", 1: "a"})
    assert clocks.agreements() == []
