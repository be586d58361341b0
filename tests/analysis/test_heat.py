"""Every rank through time: means of bins, the worst of the ranks that share a row, nothing hidden."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.analysis.over_time.fold import fold
from ddpmon.analysis.over_time.heat import (
    BEYOND,
    BINS,
    BY_CHANCE,
    Heat,
    code,
    folded,
    hot_since,
    worst,
)
from ddpmon.messages import NOTABLE, OWN_PHASES
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from tests.worlds import own_times, world_with


def heat_of(own, *, loss=None, parts=1, first=1):
    heat = Heat()
    world = world_with(own, loss=loss, first=first)
    cuts = np.linspace(0, len(world), parts + 1).astype(int)
    for begin, end in itertools.pairwise(cuts):
        heat.append(world.between(begin, end))
    return heat


def values(grid):
    return grid.low + (grid.cells.astype(float) - LEAST) / (MOST - LEAST) * (grid.high - grid.low)


def test_a_late_rank_is_hot_where_it_was_late_and_nowhere_else():
    own = own_times(100, 4)
    own[40:60, 2, 0] += 27 * 0.5
    grid = heat_of(own).grid("own", 1, 100)
    assert grid.cells.shape == (4, 100)
    hot = grid.cells >= code(grid, NOTABLE)
    assert np.flatnonzero(hot[2]).tolist() == list(range(40, 60))
    assert not hot[[0, 1, 3]].any()
    assert values(grid)[2, 50] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("steps", [1, 8, 64])
@pytest.mark.parametrize("parts", [1, 7, 60])
def test_bins_hold_means_however_the_steps_came(steps, parts):
    own = own_times(300, 3, noise=0.2, seed=1)
    grid = heat_of(own, parts=parts).grid("own", steps, BINS)
    total = own.sum(axis=2)
    others = np.stack([np.median(np.delete(total, rank, axis=1), axis=1) for rank in range(3)], axis=1)
    over = total / others - 1
    number = np.arange(1, 301) // steps
    for place in range(grid.cells.shape[1]):
        mine = number == grid.first_bin + place
        if not mine.any():
            assert (grid.cells[:, place] == NOTHING).all()
            continue
        assert values(grid)[:, place] == pytest.approx(np.clip(over[mine].mean(axis=0), -0.25, 1.0), abs=0.005)


def test_only_the_last_bins_are_kept_and_memory_does_not_grow():
    heat = heat_of(own_times(3 * BINS, 2), parts=5)
    grid = heat.grid("own", 1, 10_000)
    assert (grid.cells.shape, grid.first_bin) == ((2, BINS), 3 * BINS - BINS + 1)
    assert (grid.cells != NOTHING).all()


def test_steps_that_were_lost_are_a_gap():
    heat = Heat()
    heat.append(world_with(own_times(10, 2), first=1))
    heat.append(world_with(own_times(10, 2), first=600))
    cells = heat.grid("own", 1, BINS).cells
    assert (cells[:, -10:] != NOTHING).all()
    assert (cells[:, :-10] == NOTHING).all()


def test_other_ranks_or_steps_that_count_anew_start_it_anew():
    heat = heat_of(own_times(50, 3))
    heat.append(world_with(own_times(5, 2), first=51))
    assert heat.grid("own", 1, 100).cells.shape[0] == 2
    heat.append(world_with(own_times(5, 2), first=1))
    assert (heat.grid("own", 1, 100).cells != NOTHING).sum() == 10


def test_wait_is_a_share_of_the_step_and_step_is_over_the_median():
    own = own_times(60, 2)
    own[:, 0, 0] += 33.0
    own[30] *= 3
    heat = heat_of(own)
    wait, step = heat.grid("wait", 1, 60), heat.grid("step", 1, 60)
    assert values(wait)[:, -1] == pytest.approx([0.0, 0.5], abs=0.01)
    assert values(step)[:, -1] == pytest.approx([0.0, 0.0], abs=0.01)
    assert (values(step)[:, 30] >= 0.99).all()


def test_a_loss_that_is_not_finite_stays_visible_and_a_missing_one_is_nothing():
    loss = np.linspace(2, 1, 40)[:, None].repeat(3, axis=1)
    loss[20, 1] = np.nan
    heat = heat_of(own_times(40, 3), loss=loss)
    assert heat.grid("loss", 8, 20).cells[1, 21 // 8] == NOT_FINITE
    grid = heat.grid("loss", 1, 40)
    assert grid.cells[1, 20] == NOT_FINITE
    assert (grid.low, grid.high) == pytest.approx((1.0, 2.0))
    assert (heat_of(own_times(40, 3)).grid("loss", 1, 40).cells == NOTHING).all()


def test_before_the_first_step_there_is_nothing():
    assert Heat().grid("own", 1, 10) is None


@given(st.lists(st.integers(0, 20), min_size=1, max_size=300), st.integers(1, 60))
def test_every_rank_is_in_one_row_and_rows_fit(nodes, most):
    hosts = [f"n{node:02}" for node in sorted(nodes)]
    rows = fold(hosts, most)
    assert len(rows) <= most
    assert sorted(column for row in rows for column in row.columns) == list(range(len(hosts)))
    if len(set(hosts)) <= most:
        assert all(len({hosts[column] for column in row.columns}) == 1 for row in rows)
    if len(hosts) <= most:
        assert all(len(row.columns) == 1 for row in rows)


def test_folding_a_thousand_ranks_hides_no_hot_one():
    cells = np.full((1024, 50), 50, np.uint8)
    cells[813, 20:30] = 200
    rows = fold([f"n{rank // 8:03}" for rank in range(1024)], 40)
    shown = folded(cells, rows)
    (place,) = [i for i, row in enumerate(rows) if 813 in row.columns]
    assert (shown[place, 20:30] == 200).all()
    assert (np.delete(shown, place, axis=0) == 50).all()
    assert worst(cells, rows[place]) == 813


@pytest.mark.parametrize(
    ("cells", "share", "since"),
    [
        ([10] * 20, 0.0, None),
        ([10] * 10 + [90] * 10, 0.5, 10),
        ([90] * 20, 1.0, 0),
        ([90] * 10 + [10] * 10, 0.5, None),
        ([10] * 4 + [90] * 30 + [10] + [90] * 5, 35 / 40, 4),
        ([10, 90] * 10, 0.5, 19),
        ([0] * 5 + [90] * 5, 1.0, 5),
        ([0] * 5, 0.0, None),
    ],
)
def test_since_when_a_row_is_hot(cells, share, since):
    assert hot_since(np.array(cells, np.uint8), 50) == (pytest.approx(share), since)


@pytest.mark.parametrize("phase", OWN_PHASES)
def test_a_phase_is_told_over_the_peers_as_a_share_of_own_time(phase):
    own = own_times(60, 4)
    own[30:, 1, OWN_PHASES.index(phase)] += 27 * 0.4
    heat = heat_of(own)
    for metric in OWN_PHASES:
        told = values(heat.grid(metric, 1, 60))
        assert told[[0, 2, 3]] == pytest.approx(0.0, abs=0.005)
        assert told[1, :30] == pytest.approx(0.0, abs=0.005)
        assert told[1, 31:] == pytest.approx(0.4 if metric == phase else 0.0, abs=0.005)


def test_one_of_two_ranks_is_told_over_its_only_peer():
    own = own_times(20, 2)
    own[:, 1, 0] += 27 * 0.1
    told = values(heat_of(own).grid("data", 1, 20))
    assert told[1] == pytest.approx(0.1 / 1.05, abs=0.005)


def test_nothing_is_folded_to_nothing():
    assert fold([], 10) == []
    assert folded(np.zeros((0, 7), np.uint8), []).shape == (0, 7)


def noisy(steps, ranks, noise=0.05, seed=1):
    """[S, R, 5] Each step of each rank longer or shorter as a whole."""
    return own_times(steps, ranks) * (1 + noise * np.random.default_rng(seed).standard_normal((steps, ranks, 1)))


def test_beyond_chance_tells_a_late_rank_from_one_that_strays():
    own = noisy(200, 8)
    own[100:, 5] *= 1.12
    grid = heat_of(own, parts=9).beyond_chance("own", 1, 80)
    assert (grid.cells.shape, grid.first_bin, grid.last_step) == ((8, 80), 121, 200)
    assert (grid.cells[5] > BEYOND).all()
    assert (np.delete(grid.cells, 5, axis=0) == BY_CHANCE).all()
    assert (heat_of(noisy(200, 8)).beyond_chance("own", 1, 80).cells == BY_CHANCE).all()


@pytest.mark.parametrize(("late", "cell"), [(0.03, BEYOND), (0.07, BEYOND + 1), (0.12, BEYOND + 2), (0.3, BEYOND + 3)])
def test_a_cell_tells_by_how_much(late, cell):
    own = noisy(200, 8, noise=0.002)
    own[:, 5] *= 1 + late
    assert (heat_of(own).beyond_chance("own", 1, 100).cells[5] == cell).all()


@pytest.mark.parametrize("metric", ["own", "step"])
def test_a_disturbance_of_all_is_one_column(metric):
    own = noisy(200, 8, noise=0.01)
    own[150] *= 1.5
    cells = heat_of(own).beyond_chance(metric, 1, 100).cells
    assert (cells[:, 50] > BEYOND).all()
    assert (np.delete(cells, 50, axis=1) == BY_CHANCE).all()


def test_longer_columns_are_asked_where_a_step_strays_too_much():
    own = noisy(2000, 8, noise=0.25)
    own[:, 5] *= 1.13
    heat = heat_of(own, parts=20)
    assert (heat.beyond_chance("own", 1, 100).cells[5] >= BEYOND).mean() > 0.8
    assert (np.delete(heat.beyond_chance("own", 1, 100).cells, 5, axis=0) == BY_CHANCE).all()


def test_lateness_begins_with_its_step_also_in_longer_columns():
    own = noisy(400, 8, noise=0.01)
    own[300:, 5, 0] += 27 * 0.3
    heat = heat_of(own)
    assert np.flatnonzero(heat.beyond_chance("data", 1, 200).cells[5] >= BEYOND)[0] == 100
    eight = heat.beyond_chance("data", 8, 50)
    assert abs(8 * (eight.first_bin + np.flatnonzero(eight.cells[5] >= BEYOND)[0]) - 301) <= 8
    assert (heat.beyond_chance("forward", 1, 200).cells == BY_CHANCE).all()


def test_a_bin_that_is_not_full_does_not_stand_out_for_it():
    own = noisy(1600, 8, noise=0.2)
    own[-1, 3] = own_times(1, 1)[0, 0] * 1.9  # four deviations of a step, twelve of a bin; the last bin holds no other
    assert (heat_of(own).beyond_chance("own", 8, 30).cells == BY_CHANCE).all()


def test_what_is_beyond_chance_is_judged_anew_with_every_step():
    own = noisy(120, 8, noise=0.01)
    own[100:, 5] *= 1.3
    heat = Heat()
    world = world_with(own, first=1)
    heat.append(world.between(0, 100))
    assert (heat.beyond_chance("own", 1, 50).cells <= BY_CHANCE).all()
    heat.append(world.between(100, 120))
    cells = heat.beyond_chance("own", 1, 50).cells
    assert np.flatnonzero(cells[5] >= BEYOND).tolist() == list(range(30, 50))


def test_gaps_and_beginnings_are_nothing_there_too():
    heat = Heat()
    assert heat.beyond_chance("own", 1, 10) is None
    heat.append(world_with(own_times(10, 2), first=1))
    heat.append(world_with(own_times(10, 2), first=600))
    cells = heat.beyond_chance("own", 1, BINS).cells
    assert (cells[:, -10:] == BY_CHANCE).all()
    assert (cells[:, :-10] == NOTHING).all()
    for steps in (8, 64, 512):
        assert (heat.beyond_chance("own", steps, BINS).cells[:, -1] == BY_CHANCE).all()
