"""Runs that people made, as made-up worlds: what was told wrongly of them once is told rightly."""

import pytest

from ddpmon.analysis.events import News
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import findings
from ddpmon.analysis.steps.window import Window
from tests.analysis.noise import crowded, wandering
from tests.worlds import OWN, own_times, world_with


def unfolds(own, every):
    """Findings at each moment with the number of steps, and what was told."""
    world, window, before, moments, told, news = world_with(own, first=2), Window(600), [], [], [], News()
    for at in range(0, len(world), every):
        window.append(world.between(at, at + every))
        now = window.world(30.0)
        found = findings(now, Evidence(world_size=own.shape[1]), before, window.world())
        told += [event.text for event in news.of(before, found, float(now.end_us[-1]) / 1e6)]
        moments.append((min(len(world), at + every), found))
        before = found
    return moments, told


def slow(found):
    return [f for f in found if f.kind == "straggler" and f.severity == "warn" and f.until_step is None]


@pytest.mark.parametrize("seed", [1, 2])
def test_four_ranks_that_fight_for_two_cores_accuse_nobody(seed):
    moments, _ = unfolds(crowded(own_times(500, 4, noise=0.05, seed=seed), seed=seed), every=20)
    assert [f.text for _, found in moments for f in slow(found)] == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fifty_milliseconds_after_the_optimizer_of_steps_of_380_are_told_and_never_over(seed):
    own = own_times(120, 2, noise=0.02, seed=seed) * 374 / sum(OWN)
    own *= wandering(120, 2, share=0.02, lasts=10, seed=seed)
    own[:, 1, 4] += 50
    moments, told = unfolds(own, every=2)
    assert [(f.ranks, f.phase) for f in slow(moments[29][1])] == [([1], "other")]
    assert [(f.ranks, f.phase) for f in slow(moments[-1][1])] == [([1], "other")]
    assert not any("has recovered" in text for text in told)


def test_twenty_steps_of_754_milliseconds_against_279_are_told_within_six():
    own = own_times(20, 2, noise=0.1, seed=4) * 279 / sum(OWN)
    own[:, 1, 2] += 754 - 279
    moments, _ = unfolds(own, every=1)
    assert next(steps for steps, found in moments if slow(found)) <= 6
    assert [f.ranks for f in slow(moments[-1][1])] == [[1]]


def test_of_a_thousand_noisy_ranks_the_one_that_is_late_from_the_first_step_is_so_from_the_start():
    own = own_times(100, 1024, noise=0.1, seed=5)
    own[:, 13, 2] += 0.4 * sum(OWN)
    moments, told = unfolds(own, every=40)
    assert all([f.ranks for f in slow(found)] == [[13]] for _, found in moments)
    assert all("from the start" in f.text for _, found in moments for f in slow(found))
    assert not any("has recovered" in text for text in told)
