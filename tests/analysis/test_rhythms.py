"""Which ranks are looked at for a rhythm, of a thousand."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import periodic_straggler
from ddpmon.analysis.kinds.kind import Moment
from ddpmon.analysis.steps import rhythms
from tests.analysis.noise import wandering
from tests.analysis.test_stragglers import STEP_MS, clean
from tests.findings import judged
from tests.worlds import own_times, world_with


def told(world):
    return {found.ranks[0]: found for found in periodic_straggler.detect(Moment(Evidence(), world))}


@pytest.mark.parametrize("kind", ["even", "garbage", "hiccups"])
@pytest.mark.parametrize(("ranks", "seed"), [(2, 0), (3, 1), (8, 2), (40, 3)])
def test_whom_it_is_worth_telling_of_is_looked_at(monkeypatch, kind, ranks, seed):
    rng = np.random.default_rng(seed)
    worlds = []
    for _ in range(6):
        own = clean(kind, 400, ranks, seed)
        for rank in rng.integers(0, ranks, 2):
            own[rng.integers(0, 360) :: rng.integers(2, 60), rank, 4] += rng.uniform(0.02, 1.0) * STEP_MS
        worlds.append(world_with(own))
    some = [told(world) for world in worlds]
    monkeypatch.setattr(rhythms, "_may_gain", lambda world, _: np.arange(len(world.ranks)))
    assert some == [told(world) for world in worlds]
    assert any(some)


def test_ranks_that_only_stray_are_not_looked_at_one_by_one(monkeypatch):
    looked = []
    monkeypatch.setattr(rhythms, "_rhythm", lambda *told: looked.append(told))
    own = clean("even", 300, 200, 4)
    own[..., 1] += np.random.default_rng(4).exponential(0.1 * STEP_MS, own.shape[:2])
    own[:, 0, 1] += STEP_MS  # it alone is waited for
    assert rhythms.rhythms(world_with(own)) == []
    assert len(looked) <= 2


def test_a_rhythm_beside_ranks_that_wander_in_turn_is_told():
    own = own_times(500, 8, noise=0.01, seed=3) * wandering(500, 8, share=0.1, lasts=33, seed=3)
    own[100::10, 5, 2] += 2.5 * STEP_MS
    found = judged(world_with(own), Evidence())
    assert {"moving_straggler", "periodic_straggler"} <= {f.kind for f in found}


def test_a_rhythm_of_long_steps_is_told_with_its_period_soon_where_noise_has_many_shorter_ones():
    own = clean("garbage", 450, 8, 6) * (1 + 0.15 * np.random.default_rng(6).standard_normal((450, 8, 5)))
    own[401::10, 5, 2] += 2.5 * STEP_MS
    (found,) = told(world_with(own)).values()
    assert (found.ranks, found.facts.every, found.since_step) == ([5], 10, 403)


@pytest.mark.parametrize(("long_ms", "is_told"), [(0.35 * STEP_MS, False), (1.2 * STEP_MS, True)])
def test_of_many_ranks_a_rhythm_that_costs_little_must_be_plainer_than_one_that_costs_much(long_ms, is_told):
    """Seven long steps in time, beside one that is not."""
    own = own_times(100, 16, noise=0.03)
    own[20, 1, 2] += long_ms
    own[73:100:4, 1, 2] += long_ms
    assert [rhythm.every for rhythm in rhythms.rhythms(world_with(own))] == [4]
    assert [one.ranks for one in judged(world_with(own), Evidence()) if one.kind == "periodic_straggler"] == (
        [[1]] if is_told else []
    )
