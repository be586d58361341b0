"""Every rank through time: means of bins, the worst of the ranks that share a row, nothing hidden."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.analysis.findings import late_steps
from ddpmon.analysis.over_time.cells import hot_since, worst_cells, worst_column
from ddpmon.analysis.over_time.heat import (
    BINS_PER_RESOLUTION,
    IN_NOISE,
    LATE,
    Heat,
    LateSteps,
)
from ddpmon.analysis.over_time.rank_groups import group_ranks
from ddpmon.messages import OWN_PHASES, WHOLE_RUN
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from tests.analysis import noise
from tests.findings import judged
from tests.worlds import own_times, world_with


def heat_of(own, *, loss=None, parts=1, first=1):
    heat = Heat()
    world = world_with(own, loss=loss, first=first)
    cuts = np.linspace(0, len(world), parts + 1).astype(int)
    for begin, end in itertools.pairwise(cuts):
        heat.append(world.steps_between(begin, end))
    return heat


def values(grid):
    return grid.low + (grid.cells.astype(float) - LEAST) / (MOST - LEAST) * (grid.high - grid.low)


@pytest.mark.parametrize("steps", [1, 8, 64])
@pytest.mark.parametrize("parts", [1, 7, 60])
def test_bins_hold_means_however_the_steps_came(steps, parts):
    own = own_times(300, 3, noise=0.2, seed=1)
    grid = heat_of(own, parts=parts).metric_grid("own", steps, BINS_PER_RESOLUTION)
    total = own.sum(axis=2)
    number = np.arange(1, 301) // steps
    for place in range(grid.cells.shape[1]):
        mine = number == grid.first_bin + place
        if not mine.any():
            assert (grid.cells[:, place] == NOTHING).all()
            continue
        means = total[mine].mean(axis=0)
        others = [np.median(np.delete(means, rank)) for rank in range(3)]
        assert values(grid)[:, place] == pytest.approx(np.clip(means / others - 1, -0.25, 1.0), abs=0.005)


def test_only_the_last_bins_are_kept_and_memory_does_not_grow():
    heat = heat_of(own_times(3 * BINS_PER_RESOLUTION, 2), parts=5)
    grid = heat.metric_grid("own", 1, 10_000)
    assert (grid.cells.shape, grid.first_bin) == (
        (2, BINS_PER_RESOLUTION),
        3 * BINS_PER_RESOLUTION - BINS_PER_RESOLUTION + 1,
    )
    assert (grid.cells != NOTHING).all()


def test_other_ranks_or_steps_that_count_anew_start_it_anew():
    heat = heat_of(own_times(50, 3))
    heat.append(world_with(own_times(5, 2), first=51))
    assert heat.metric_grid("own", 1, 100).cells.shape[0] == 2
    heat.append(world_with(own_times(5, 2), first=1))
    assert (heat.metric_grid("own", 1, 100).cells != NOTHING).sum() == 10


def test_wait_is_a_share_of_the_step_and_step_is_over_the_median():
    own = own_times(60, 2)
    own[:, 0, 0] += 33.0
    own[30] *= 3
    heat = heat_of(own)
    wait, step = heat.metric_grid("wait", 1, 60), heat.metric_grid("step", 1, 60)
    assert values(wait)[:, -1] == pytest.approx([0.0, 0.5], abs=0.01)
    assert values(step)[:, -1] == pytest.approx([0.0, 0.0], abs=0.01)
    assert (values(step)[:, 30] >= 0.99).all()


def test_a_loss_that_is_not_finite_stays_visible_and_a_missing_one_is_nothing():
    loss = np.linspace(2, 1, 40)[:, None].repeat(3, axis=1)
    loss[20, 1] = np.nan
    heat = heat_of(own_times(40, 3), loss=loss)
    assert heat.metric_grid("loss", 8, 20).cells[1, 21 // 8] == NOT_FINITE
    grid = heat.metric_grid("loss", 1, 40)
    assert grid.cells[1, 20] == NOT_FINITE
    assert (grid.low, grid.high) == pytest.approx((1.0, 2.0))
    assert (heat_of(own_times(40, 3)).metric_grid("loss", 1, 40).cells == NOTHING).all()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=300), st.integers(1, 60))
def test_every_rank_is_in_one_row_and_rows_fit(nodes, most):
    hosts = [f"n{node:02}" for node in sorted(nodes)]
    rows = group_ranks(hosts, most)
    assert len(rows) <= most
    assert sorted(column for row in rows for column in row.columns) == list(range(len(hosts)))
    if len(set(hosts)) <= most:
        assert all(len({hosts[column] for column in row.columns}) == 1 for row in rows)
    if len(hosts) <= most:
        assert all(len(row.columns) == 1 for row in rows)


def test_folding_a_thousand_ranks_hides_no_hot_one():
    cells = np.full((1024, 50), 50, np.uint8)
    cells[813, 20:30] = 200
    rows = group_ranks([f"n{rank // 8:03}" for rank in range(1024)], 40)
    shown = worst_cells(cells, rows)
    (place,) = [i for i, row in enumerate(rows) if 813 in row.columns]
    assert (shown[place, 20:30] == 200).all()
    assert (np.delete(shown, place, axis=0) == 50).all()
    assert worst_column(cells, rows[place]) == 813


@pytest.mark.parametrize(
    ("cells", "share", "since"),
    [
        ([10] * 20, 0.0, None),
        ([10] * 10 + [90] * 10, 0.5, 10),
        ([90] * 20, 1.0, 0),
        ([90] * 10 + [10] * 10, 0.5, None),
        ([10] * 4 + [90] * 30 + [10] + [90] * 5, 35 / 40, 4),
        ([10, 90] * 10, 0.5, None),
        ([10] * 4 + [90] * 20 + [10] * 2 + [90], 21 / 27, None),
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
        told = values(heat.metric_grid(metric, 1, 60))
        assert told[[0, 2, 3]] == pytest.approx(0.0, abs=0.005)
        assert told[1, :30] == pytest.approx(0.0, abs=0.005)
        assert told[1, 31:] == pytest.approx(0.4 if metric == phase else 0.0, abs=0.005)


def noisy(steps, ranks, share=0.05, seed=1):
    """[S, R, 5] Each step of each rank longer or shorter as a whole."""
    return own_times(steps, ranks) * (1 + share * np.random.default_rng(seed).standard_normal((steps, ranks, 1)))


def mixed(steps, ranks, seed=1):
    """The same with white noise of 15% and wandering noise of 5% that lasts for 33 steps."""
    wandering = noise.wandering(steps, ranks, share=0.05, lasts=33, seed=seed)[..., :1]
    return noisy(steps, ranks, 0.15, seed) * wandering


def lit(heat, steps, metric="own", late=()):
    """[R, columns] Which cells are late, of those with a value."""
    cells = heat.judged_grid(metric, steps, BINS_PER_RESOLUTION, late).cells
    return (cells >= LATE)[:, (cells != NOTHING).all(axis=0)]


EVERY_RESOLUTION = (1, 8, 64, 512, WHOLE_RUN)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_that_is_late_since_the_start_is_lit_at_every_resolution(ranks):
    own = noisy(5000, ranks, 0.04)
    own[:, 1] *= 1.5
    heat = heat_of(own, parts=3)
    for steps in EVERY_RESOLUTION:
        shown = lit(heat, steps)
        assert shown[1].mean() > 0.95, steps
        assert not np.delete(shown, 1, axis=0).any(), steps


@pytest.mark.parametrize("ranks", [2, 8])
def test_noise_alone_is_quiet_at_every_resolution(ranks):
    heat = heat_of(mixed(5000, ranks), parts=3)
    for steps in EVERY_RESOLUTION:
        assert lit(heat, steps).mean() < 0.006, steps  # of many worlds one in a thousand, of one a few of a block


def test_late_ranks_are_not_noise_also_where_they_are_half_of_the_world():
    own = noisy(400, 4, 0.02)
    own[200:224, :2] *= 1.2
    shown = lit(heat_of(own), 1)
    first = shown.shape[1] - 200
    assert shown[:2, first : first + 24].mean() > 0.9
    assert not shown[2:].any()
    assert not shown[:, : first - 4].any()


def test_a_cell_is_late_where_a_finding_says_so():
    heat = heat_of(mixed(600, 4))
    assert not lit(heat, 1).any()
    told = [LateSteps(frozenset({2}), 401, 500, "data")]
    for metric, which in (("own", [2]), ("data", [2]), ("forward", [])):
        cells = heat.judged_grid(metric, 1, 200, told).cells
        assert np.flatnonzero((cells >= LATE).any(axis=1)).tolist() == which
        if which:
            assert np.flatnonzero(cells[2] >= LATE).tolist() == list(range(100))
    goes_on = heat.judged_grid("own", 8, 75, [LateSteps(frozenset({2}), 401, None, "data")])
    assert np.flatnonzero(goes_on.cells[2] >= LATE)[0] + goes_on.first_bin == 401 // 8
    assert (goes_on.cells[2][401 // 8 - goes_on.first_bin :] >= LATE).all()


def test_a_rhythm_that_a_finding_names_shows_beside_pauses_of_all_ranks():
    random = np.random.default_rng(5)
    own = own_times(420, 2, noise=0.05, seed=5)
    own[..., 4] += np.where(random.random((420, 2)) < 0.04, random.uniform(20, 120, (420, 2)), 0.0)
    own[6::7, 1, 4] += 80
    heat, findings = heat_of(own), judged(world_with(own))
    assert [(f.kind, f.ranks) for f in findings if f.kind == "periodic_straggler"] == [("periodic_straggler", [1])]
    alone, named = (heat.judged_grid("own", 1, 420, late).cells >= LATE for late in ((), late_steps(findings)))
    steps = heat.judged_grid("own", 1, 420).first_bin + np.arange(named.shape[1])
    rhythm = (steps % 7 == 0) & (steps >= 60)
    assert alone[1, rhythm].mean() < 0.2, "pauses of all ranks hide it"
    assert named[1, rhythm].mean() > 0.9
    assert named[1, ~rhythm].mean() < 0.1
    assert not named[0, ~alone[0]].any()


def test_the_noise_is_told_and_too_few_bins_tell_none():
    heat = heat_of(noisy(2000, 4, 0.05))
    one, eight, longest = (heat.judged_grid("own", steps, BINS_PER_RESOLUTION) for steps in (1, 8, 512))
    assert 0.1 < one.noise < 0.5
    assert eight.noise < one.noise / 2
    assert longest.noise is None
    assert set(longest.cells.ravel()) <= {IN_NOISE, NOTHING}
    alone = heat_of(noisy(200, 1))
    assert alone.judged_grid("own", 1, BINS_PER_RESOLUTION).noise is None
    assert alone.judged_grid("step", 1, BINS_PER_RESOLUTION).noise is not None


@pytest.mark.parametrize("ranks", [2, 8])
def test_one_long_step_of_one_rank_is_one_cell(ranks):
    own = noisy(200, ranks, 0.01)
    own[150, 1] *= 1.5
    assert np.argwhere(lit(heat_of(own), 1)).tolist() == [[1, 150]]


@pytest.mark.parametrize(("late", "cell"), [(0.03, LATE), (0.07, LATE + 1), (0.12, LATE + 2), (0.3, LATE + 3)])
def test_a_cell_tells_by_how_much(late, cell):
    own = noisy(200, 8, share=0.002)
    own[:, 5] *= 1 + late
    assert (heat_of(own).judged_grid("own", 1, 100).cells[5] == cell).all()


def test_a_long_step_of_all_ranks_is_a_column_of_steps_and_nothing_in_own_time():
    own = noisy(200, 8, share=0.01)
    own[150] *= 1.5
    heat = heat_of(own)
    cells = heat.judged_grid("step", 1, 100).cells
    assert (cells[:, 50] > LATE).all()
    assert (np.delete(cells, 50, axis=1) == IN_NOISE).all()
    assert (heat.judged_grid("own", 1, 100).cells == IN_NOISE).all()


def test_a_bin_that_is_not_full_does_not_stand_out_for_it():
    own = noisy(1600, 8, share=0.2)
    own[-1, 3] = own_times(1, 1)[0, 0] * 1.6  # three deviations of a step, eight of a bin; the last bin holds no other
    assert (heat_of(own).judged_grid("own", 8, 30).cells == IN_NOISE).all()


def test_gaps_and_beginnings_are_nothing_there_too():
    heat = Heat()
    assert heat.judged_grid("own", 1, 10) is None
    heat.append(world_with(own_times(10, 2), first=1))
    heat.append(world_with(own_times(10, 2), first=600))
    cells = heat.judged_grid("own", 1, BINS_PER_RESOLUTION).cells
    assert (cells[:, -10:] == IN_NOISE).all()
    assert (cells[:, :-10] == NOTHING).all()
    for steps in (8, 64, 512, WHOLE_RUN):
        assert (heat.judged_grid("own", steps, BINS_PER_RESOLUTION).cells[:, -1] == IN_NOISE).all()


@pytest.mark.parametrize("parts", [1, 9])
@pytest.mark.parametrize("last", [40, 256, 257, 5000])
def test_the_whole_run_is_shown_in_the_finest_columns_in_which_it_fits(last, parts):
    own = own_times(last, 2, noise=0.2, seed=3)
    heat = heat_of(own, parts=parts)
    for columns in (1, 58, 139, BINS_PER_RESOLUTION):
        grid = heat.metric_grid("own", WHOLE_RUN, columns)
        assert grid.cells.shape[1] <= columns
        assert grid.steps == 1 or last // (grid.steps // 2) + 1 > columns
        assert grid.first_bin == 1 // grid.steps
        number = np.arange(1, last + 1) // grid.steps
        mean = own.sum(axis=2)[number == grid.first_bin].mean(axis=0)
        assert values(grid)[:, 0] == pytest.approx(np.clip(mean / mean[::-1] - 1, -0.25, 1), abs=0.005)
        assert grid.end_us[-1] == world_with(own, first=1).end_us[-1]
