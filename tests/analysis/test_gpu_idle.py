"""GPU utilization on the heat map: samples by the second over steps of any length, on each rank's own clock."""

import numpy as np
import pytest

from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION
from ddpmon.analysis.over_time.heat import MAX_WAITING, Heat, least_cell
from ddpmon.messages.cells import NOTHING
from tests.worlds import own_times, world_with

SECOND = 1_000_000


def world(steps=90, ranks=2, step_ms=33.0, first=1):
    """Steps that begin one second after nothing."""
    own = own_times(steps, ranks) * (step_ms - 6.0) / 27.0
    return world_with(own, first=first, start_us=SECOND)


def idle(heat, steps=1):
    """[R, bins] Share of its time in which a GPU did nothing; NaN: not known."""
    grid = heat.metric_grid("gpu", steps, BINS_PER_RESOLUTION)
    assert (grid.low, grid.high) == (0.0, 1.0)
    return np.where(grid.cells == NOTHING, np.nan, (grid.cells.astype(float) - 1) / 253)


def sampled(heat, rank, percents, ahead_us=0):
    for second, percent in enumerate(percents, start=1):
        heat.add_gpu_sample(rank, second * SECOND - ahead_us, (second + 1) * SECOND - ahead_us, percent)
    heat.overlay_samples()


def test_a_second_is_laid_over_all_its_steps_and_what_nobody_told_is_blank():
    heat, steps = Heat(), world()
    heat.append(steps)
    sampled(heat, 0, [100.0, 20.0])
    told = idle(heat)
    assert np.isnan(told[1]).all()
    number = np.arange(1, 1 + told.shape[1])
    end = SECOND + number * 33_000
    within = {0.0: (end > SECOND) & (end < 1.95 * SECOND), 0.8: (end > 2.05 * SECOND) & (end <= 3 * SECOND)}
    for share, where in within.items():
        assert told[0, where] == pytest.approx(share, abs=0.005)
    assert np.isnan(told[0, end > 3.1 * SECOND]).all()
    both = (end - 33_000 < 2 * SECOND) & (end > 2 * SECOND)
    assert told[0, both] == pytest.approx(0.4, abs=0.005)


def test_a_long_step_has_the_mean_of_its_seconds():
    heat = Heat()
    heat.append(world(steps=4, step_ms=4000.0))
    sampled(heat, 1, [100.0, 100.0, 0.0, 0.0, 100.0])
    assert idle(heat)[1, 0] == pytest.approx(0.5, abs=0.01)


def test_less_work_is_worse_so_that_the_idlest_of_folded_ranks_is_shown():
    heat = Heat()
    heat.append(world())
    sampled(heat, 0, [90.0])
    sampled(heat, 1, [30.0])
    grid = heat.metric_grid("gpu", 8, BINS_PER_RESOLUTION)
    hot = grid.cells >= least_cell(grid, 0.5)
    assert not hot[0].any()
    assert hot[1, 1:4].all()


@pytest.mark.parametrize("ahead_us", [5_000_000_000, -700_000])
def test_samples_lie_on_their_ranks_own_clock(ahead_us):
    heat, steps = Heat(), world()
    heat.append(steps, np.array([0, ahead_us]))
    sampled(heat, 1, [100.0, 20.0], ahead_us)
    plain = Heat()
    plain.append(steps)
    sampled(plain, 1, [100.0, 20.0])
    assert np.array_equal(
        heat.metric_grid("gpu", 1, BINS_PER_RESOLUTION).cells, plain.metric_grid("gpu", 1, BINS_PER_RESOLUTION).cells
    )
    assert (~np.isnan(idle(heat)[1])).any()


def test_a_sample_waits_for_the_step_in_which_it_was_taken():
    heat, steps = Heat(), world()
    heat.append(steps.steps_between(0, 20))
    sampled(heat, 0, [50.0])
    assert np.isnan(idle(heat)).all()
    heat.append(steps.steps_between(20, 90))
    heat.overlay_samples()
    assert (~np.isnan(idle(heat)[0])).sum() == 31


def test_samples_from_before_the_first_step_and_of_no_rank_are_forgotten():
    heat = Heat()
    for rank in (0, 7):
        heat.add_gpu_sample(rank, 0, SECOND // 2, 40.0)
        heat.overlay_samples()
    heat.append(world())
    heat.add_gpu_sample(7, SECOND, 2 * SECOND, 40.0)
    heat.add_gpu_sample(0, 0, SECOND, 40.0)
    heat.overlay_samples()
    assert np.isnan(idle(heat)).all()


def test_while_nothing_comes_on_samples_do_not_pile_up():
    heat = Heat()
    heat.append(world())
    for second in range(10, 10 + 5 * MAX_WAITING):
        heat.add_gpu_sample(0, second * SECOND, (second + 1) * SECOND, 100.0)
        heat.overlay_samples()
    assert len(heat._gpu_idle._waiting) <= 2 * MAX_WAITING


def test_very_many_steps_in_a_second_and_values_that_are_none():
    heat = Heat()
    heat.append(world(steps=3000, step_ms=7.0))
    sampled(heat, 0, [50.0] * 22)
    sampled(heat, 1, [np.nan, 250.0, -3.0] * 4)
    told = idle(heat, 8)
    assert np.nanmin(told) >= 0
    assert np.nanmax(told) <= 1
    assert told[0, -200:-30] == pytest.approx(0.5, abs=0.01)
