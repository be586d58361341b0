"""Own time, wait and transfer of records whose right answer is known."""

import msgspec
import numpy as np
import pytest

from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.messages import SYNC_BUFFERS, SYNC_COLLECTIVE, SYNC_GRADIENTS, Step, Sync
from tests.worlds import own_times, records, world_with


def rows(*by_rank):
    """One step of several ranks."""
    return Rows(tuple(range(len(by_rank))), [list(by_rank)])


def test_a_rank_that_is_delayed_has_all_the_own_time_and_the_others_wait():
    own = own_times(40, 4)
    own[:, 2, 0] += 12
    world = world_with(own, transfer=6)
    assert np.allclose(world.own_ms, [[27, 27, 39, 27]])
    assert np.allclose(world.wait_ms, [[12, 12, 0, 12]])
    assert np.allclose(world.transfer_ms, 6)
    assert np.allclose(world.phases_ms[:, 2, 0], 14)
    assert (world.critical == 2).all()
    assert np.allclose(world.late_ms, [[0, 0, 12, 0]])


def test_phases_wait_and_transfer_add_up_to_the_step():
    world = world_with(own_times(50, 4, noise=0.3))
    total = world.phases_ms.sum(axis=2) + world.wait_ms + world.transfer_ms
    assert np.allclose(total, world.length_ms)
    assert np.allclose(world.own_ms, world.phases_ms.sum(axis=2))


def test_rounding_that_a_rank_left_over_is_other():
    step = Step(2, 100_000, 10_000, 1000, 1000, 1000, 1000, 1000, [Sync(SYNC_GRADIENTS, 5002, 10_000)])
    world = split_waits(rows(step, step))
    assert np.allclose(world.phases_ms[0, 0], [1, 1, 1, 1, 1.002])


def test_one_rank_alone_never_waits():
    world = world_with(own_times(30, 1), transfer=2)
    assert np.allclose(world.wait_ms, 0)
    assert np.allclose(world.transfer_ms, 2)
    assert (world.critical == -1).all()


def test_a_step_without_any_synchronisation_is_all_own_time():
    step = Step(2, 100_000, 10_000, 1000, 2000, 3000, 1000, 3000)
    world = split_waits(rows(step, step))
    assert np.allclose(world.own_ms, 10)
    assert np.isnan(world.late_ms).all()
    assert world.critical.tolist() == [-1]


def test_a_slow_rank_0_under_buffer_broadcast_is_critical_although_gradients_arrive_together():
    # Everyone waits for rank 0's buffers in forward, then all compute equally long.
    def step(arrival_us):
        syncs = [Sync(SYNC_BUFFERS, arrival_us, 20_000), Sync(SYNC_GRADIENTS, 30_000, 32_000)]
        return Step(2, 100_000, 32_000, arrival_us, 5000, 5000, 0, 0, syncs)

    world = split_waits(rows(step(19_900), step(4000), step(4100), step(4200)))
    assert world.critical.tolist() == [0]
    assert np.allclose(world.wait_ms, [[0, 15.9, 15.8, 15.7]])
    assert np.allclose(world.own_ms, [[29.9, 14, 14.1, 14.2]])
    assert np.allclose(world.exposed_ms, 2)


def buffered(own, *, late_root):
    """[S, R] ms before the buffers of each step, then 10 ms of work for everyone; the root waits for a late rank."""
    own_us = (own * 1000).astype(int)
    told = []
    for i, before in enumerate(own_us):
        last = before.max()
        leaves = [
            last if late_root or rank in (0, before.argmax()) else max(mine, before[0])
            for rank, mine in enumerate(before)
        ]
        arrivals = [left + 10_000 for left in leaves]
        length = int(max(arrivals)) + 2000
        told.append(
            [
                Step(
                    2 + i, (i + 1) * 100_000, length, int(mine), 10_000, 0, 0, 0,
                    [Sync(SYNC_BUFFERS, int(mine), int(left)), Sync(SYNC_GRADIENTS, int(arrival), int(length))],
                )
                for mine, left, arrival in zip(before, leaves, arrivals, strict=True)
            ]
        )  # fmt: skip
    return Rows(tuple(range(own.shape[1])), told)


@pytest.mark.parametrize("late_root", [True, False])
@pytest.mark.parametrize("late", [0, 2])
def test_lateness_with_buffers_is_that_of_the_rank_that_wait_names(late, late_root):
    """All leave the buffers together, or (a broadcast that the root alone waits in) the root with the late rank."""
    own = np.full((6, 4), 4.0)
    own[:, late] += 16
    world = split_waits(buffered(own, late_root=late_root))
    assert set(world.critical.tolist()) == {late}
    assert np.allclose(world.late_ms[:, late], 16)
    assert np.allclose(np.delete(world.late_ms, late, axis=1), 0)


def test_a_rank_is_never_said_to_wait_longer_than_it_was_blocked():
    # Rank 1 came late to a broadcast whose root was there in time: rank 2 was let go before.
    early = Step(2, 100_000, 10_000, 10_000 - 500, 0, 0, 0, 0, [Sync(SYNC_BUFFERS, 1000, 1500)])
    late = Step(2, 100_000, 10_000, 10_000 - 500, 0, 0, 0, 0, [Sync(SYNC_BUFFERS, 9000, 9500)])
    world = split_waits(rows(early, late, early))
    assert np.allclose(world.wait_ms, [[0.5, 0, 0.5]])
    assert np.allclose(world.transfer_ms, [[0, 0.5, 0]])


def test_gradients_are_matched_although_one_rank_calls_further_collectives():
    plain = Step(2, 100_000, 30_000, 20_000, 0, 0, 0, 0, [Sync(SYNC_GRADIENTS, 20_000, 30_000)])
    extra = [Sync(SYNC_COLLECTIVE, 1000, 3000), Sync(SYNC_GRADIENTS, 26_000, 30_000)]
    world = split_waits(rows(plain, Step(2, 100_000, 30_000, 24_000, 0, 0, 0, 0, extra)))
    assert np.allclose(world.exposed_wait_ms, [[6, 0]])
    assert np.allclose(world.wait_ms, [[6, 2]])
    assert np.allclose(world.transfer_ms, [[4, 4]])
    assert world.critical.tolist() == [1]


def test_several_gradient_synchronisations_in_a_step_are_matched_in_order():
    def step(first, second):
        syncs = [Sync(SYNC_GRADIENTS, first, 10_000, 100), Sync(SYNC_GRADIENTS, second, 20_000, 200)]
        return Step(2, 50_000, 20_000, first + second - 10_000, 0, 0, 0, 0, syncs)

    world = split_waits(rows(step(9000, 15_000), step(5000, 19_000)))
    assert np.allclose(world.wait_ms, [[4, 4]])
    assert np.allclose(world.transfer_ms, [[2, 2]])
    assert world.gradient_bytes.tolist() == [[300, 300]]
    assert np.allclose(world.late_ms, 0)  # each made the other wait for 4 ms once


def test_clocks_of_other_nodes_are_brought_to_the_worlds():
    told = records(own_times(5, 2))
    later = [msgspec.structs.replace(step, end_us=step.end_us + 5_000_000) for step in told[1]]
    shifted = [list(pair) for pair in zip(told[0], later, strict=True)]
    apart = split_waits(Rows((0, 1), shifted))
    together = split_waits(Rows((0, 1), shifted), np.array([[0, -5_000_000]]))
    assert apart.wait_ms.max() > 0
    assert together.wait_ms.max() == 0


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_missing_loss_and_one_that_is_no_number_are_told_apart(value):
    step = Step(2, 100_000, 10_000, 10_000, 0, 0, 0, 0, [], value)
    world = split_waits(rows(step))
    assert world.has_loss.tolist() == [[value is not None]]
    assert value is None or repr(world.loss[0, 0].item()) == repr(value)


def test_ranks_on_clocks_of_their_own_are_aligned_by_the_end_of_the_gradients():
    """Two GPUs whose clocks are seconds apart: who arrived last is told by who was blocked least."""
    by_rank = [
        Step(2, 100_000 + drift, 20_000, 0, 0, arrived, 0, 0, [Sync(SYNC_GRADIENTS, arrived, 20_000)])
        for drift, arrived in ((0, 11_000), (3_000_000, 19_000), (-70_000, 14_000))
    ]
    world = split_waits(rows(*by_rank), own_clocks={0, 1, 2})
    assert world.wait_ms.tolist() == [[8, 0, 5]]
    assert np.allclose(world.transfer_ms, 1)
    assert world.critical.tolist() == [1]
