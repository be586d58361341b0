"""What stands out of many noisy series: quiet where nothing does, whatever the noise is like."""

import numpy as np
import pytest

from ddpmon.analysis.statistics.excess import over_peers
from ddpmon.analysis.statistics.scan import FEWEST, NEGLIGIBLE, scan
from tests.analysis import noise


def straying(kind, share, ranks, *, seed=1, steps=256):
    """[S, R] Own times around 1."""
    rng = np.random.default_rng(seed)
    if kind == "independent":
        return 1 + share * rng.standard_normal((steps, ranks))
    if kind == "wandering":
        return noise.wandering(steps, ranks, share=share, lasts=33, seed=seed)[..., 0]
    return 1 + share * noise.heavy_tails(steps, ranks, seed=seed)


def lit(own):
    """[S, R] Whether a value stands out."""
    over = over_peers(own / np.median(own, axis=1, keepdims=True) - 1)
    return scan(over.astype(np.float32)).over > 0


@pytest.mark.parametrize("ranks", [2, 4, 64, 512])
@pytest.mark.parametrize(
    ("kind", "share"),
    [("independent", 0.05), ("independent", 0.3), ("wandering", 0.05), ("wandering", 0.1), ("heavy", 0.02)],
)
def test_noise_alone_is_quiet(kind, share, ranks):
    assert lit(straying(kind, share, ranks)).mean() < 0.002


@pytest.mark.parametrize("ranks", [2, 4, 64, 512])
def test_a_rank_that_is_late_by_a_tenth_is_one_line(ranks):
    own = straying("independent", 0.05, ranks)
    own[100:, 1] *= 1.1
    shown = lit(own)
    assert shown[100:, 1].mean() > 0.95
    assert shown[:90, 1].mean() < 0.05
    assert not np.delete(shown, 1, axis=1).any()


@pytest.mark.parametrize(("ranks", "slow"), [(2, 1), (4, 2), (8, 4), (64, 8)])
def test_a_slow_host_is_one_block_also_where_it_is_half_of_the_world(ranks, slow):
    own = straying("independent", 0.02, ranks)
    own[80:200, :slow] *= 1.2
    shown = lit(own)
    assert shown[80:200, :slow].mean() > 0.95
    assert shown[:, slow:].mean() < 0.001
    assert shown[:70, :slow].mean() < 0.05
    assert shown[210:, :slow].mean() < 0.05


def test_a_stretch_that_strays_more_than_quiet_peers_has_no_gaps():
    """Rare stalls of anyone make single steps no news, so that what is late shows in long windows alone."""
    own = straying("independent", 0.002, 4)
    rng = np.random.default_rng(4)
    own += (rng.random(own.shape) < 0.02) * rng.pareto(1.5, own.shape)
    own[100:200, 2] += 0.9 + 0.09 * rng.standard_normal(100)
    shown = lit(own)[:, 2]
    assert shown[101:199].all()
    assert not shown[:99].any()
    assert not shown[201:].any()


def test_stalls_of_one_rank_stand_out_one_by_one_and_those_that_all_have_do_not():
    own = straying("independent", 0.01, 8)
    own[::10, 2] *= 1.3
    shown = lit(own)
    assert np.array_equal(np.flatnonzero(shown[:, 2]), np.arange(0, 256, 10))
    assert not np.delete(shown, 2, axis=1).any()
    everywhere = np.random.default_rng(3).random((256, 64)) < 0.05
    assert lit(straying("independent", 0.01, 64) * (1 + 0.5 * everywhere)).mean() < 0.01


def test_stalls_elsewhere_do_not_hide_a_late_rank():
    own = straying("independent", 0.05, 64)
    own *= 1 + 3 * (np.random.default_rng(3).random(own.shape) < 0.01)
    own[:, 5] *= 1.15
    assert lit(own)[:, 5].mean() > 0.9


def test_what_lasts_counts_for_less_where_noise_lasts():
    """The same lateness for as long: beyond chance among independent values, not among wandering ones."""
    shown = []
    for kind in ("independent", "wandering"):
        own = straying(kind, 0.1, 64)
        own[100:164, 3] += 0.15
        shown.append(lit(own)[100:164, 3].mean())
    assert shown[0] > 0.8
    assert shown[1] == 0


def test_one_series_is_compared_with_itself():
    alone = 0.03 * np.random.default_rng(2).standard_normal((256, 1)).astype(np.float32)
    assert not scan(alone).over.any()
    alone[100] = 0.6
    assert np.flatnonzero(scan(alone).over).tolist() == [100]


def test_what_is_negligible_is_not_shown_and_a_mean_tells_how_far():
    own = straying("independent", 0.001, 16)
    own[:, 1] *= 1 + NEGLIGIBLE / 2
    own[:, 2] *= 1.08
    over = scan(over_peers(own - 1).astype(np.float32)).over
    assert not over[:, 1].any()
    assert over[:, 2] == pytest.approx(0.08, abs=0.01)


@pytest.mark.parametrize("shape", [(0, 4), (FEWEST - 1, 4), (40, 0), (FEWEST, 1), (40, 2)])
def test_few_values_say_nothing_and_equal_ones_neither(shape):
    assert scan(np.zeros(shape, np.float32)).over.shape == shape
    assert not scan(np.ones(shape, np.float32)).over.any()
