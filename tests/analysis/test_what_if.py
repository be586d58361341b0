"""Predicted gains against those of the same made-up world without its fault."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.steps.what_if import gain_if_like_peers, transfer_after
from ddpmon.analysis.verdict import running_sentence
from tests.findings import judged
from tests.worlds import OWN, own_times, world_with

BASE_MS = sum(OWN)


def run(own, together_ms, apart_ms=1.0):
    """A world whose transfer is longer by `together_ms` where ranks arrive together, as they then share the cores."""
    arrivals = own.sum(axis=2)
    lead = arrivals.max(axis=1) - np.median(arrivals, axis=1)
    return world_with(own, transfer=4 + together_ms * np.exp(-lead / apart_ms))


@pytest.mark.parametrize(("step_ms", "most"), [(100, 0.013), (25, 0.04)])
@pytest.mark.parametrize("ranks", [2, 8])
def test_the_gain_holds_although_transfer_is_longer_when_ranks_arrive_together(step_ms, most, ranks):
    """The bound of the median error depends on the length of steps; the steps before the fault give the transfer."""
    errors = []
    for seed in range(8):
        own = own_times(300, ranks, noise=0.05, seed=seed) * (step_ms / BASE_MS)
        well = run(own, together_ms=1.5, apart_ms=2.0)
        own[100:, 1, 2] += 0.25 * step_ms
        ill = run(own, together_ms=1.5, apart_ms=2.0)
        real = ill.step_ms[100:].sum() / well.step_ms[100:].sum()
        errors.append(gain_if_like_peers(ill.steps_between(100, 300), 1, seen=ill) / real - 1)
    assert np.median(np.abs(errors)) <= most
    assert np.quantile(np.abs(errors), 0.9) <= 0.05
    assert abs(np.mean(errors)) <= most / 2  # neither hopeful nor gloomy


@pytest.mark.parametrize(("ranks", "slow"), [(8, 2), (8, 5), (8, 6), (16, 12)])
def test_the_gain_of_fixing_many_ranks_holds_although_few_show_their_chance(ranks, slow):
    errors = []
    for seed in range(4):
        own = own_times(300, ranks, seed=seed) * np.random.default_rng(seed).normal(1, 0.05, (300, ranks, 5))
        well = world_with(own)
        own[:, :slow, 2] += 0.25 * BASE_MS
        ill = world_with(own)
        errors.append(gain_if_like_peers(ill, range(slow)) / float(ill.step_ms.sum() / well.step_ms.sum()) - 1)
    assert np.mean(errors) == pytest.approx(0, abs=0.007)


@pytest.mark.parametrize("seed", range(3))
def test_the_gain_of_one_of_two_ranks_holds_although_its_delay_differs_in_each_step(seed):
    own = own_times(300, 2, noise=0.05, seed=seed)
    well = world_with(own)
    own[:, 1, 0] += np.random.default_rng(seed).exponential(40, 300)
    ill = world_with(own)
    real = ill.step_ms.sum() / well.step_ms.sum()
    assert [gain_if_like_peers(ill, 1), gain_if_like_peers(ill, 1, "data")] == pytest.approx([real, real], rel=0.015)


def test_transfer_that_was_never_seen_is_not_made_up():
    lead, transfer = np.linspace(20, 30, 100), np.linspace(4, 5, 100)
    never, least, middle = np.interp([0.0, 20.0, 25.0], *transfer_after(lead, transfer))
    assert never == pytest.approx(least)
    assert 4 <= never <= 4.2
    assert middle == pytest.approx(4.5, abs=0.1)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999), ranks=st.integers(2, 6), steps=st.integers(1, 80), noise=st.floats(0, 0.5))
def test_a_change_that_is_none_is_the_real_step(seed, ranks, steps, noise):
    """The largest own time and the transfer of the rank that waited for nobody add up to the step."""
    world = world_with(own_times(steps, ranks, noise=noise, seed=seed))
    critical = np.maximum(world.critical, 0)
    simulated = world.slowest_ms + world.transfer_ms[np.arange(len(world)), critical]
    assert simulated.sum() == pytest.approx(world.step_ms.sum(), rel=0.005)
    assert gain_if_like_peers(world, []) == 1.0
    assert gain_if_like_peers(world, list(range(ranks))) == 1.0


def test_of_two_late_ranks_the_verdict_says_that_one_alone_gains_nothing():
    own = own_times(200, 4, noise=0.02)
    own[:, 1:3, 2] += 15
    found = judged(world_with(own), Evidence())
    verdict = running_sentence(found, None)
    assert verdict.severity == "warn"
    assert verdict.text.endswith("x faster if both are fixed")
    (finding,) = found
    assert finding.evidence["alone_gain"] == pytest.approx(1, abs=0.02)
    assert finding.evidence["gain"] > 1.3


def test_a_big_world_gains_as_a_small_one():
    own = own_times(60, 300, noise=0.02)
    well = world_with(own)
    own[:, 7, 2] += 20
    ill = world_with(own)
    assert gain_if_like_peers(ill, 7) == pytest.approx(ill.step_ms.sum() / well.step_ms.sum(), rel=0.005)
