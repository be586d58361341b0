"""Test that a window that grows step by step equals one from scratch."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import findings
from ddpmon.analysis.slowness.describe import describe
from ddpmon.analysis.slowness.detector import Detector
from ddpmon.analysis.slowness.past import Past
from ddpmon.analysis.steps.summary import summarise
from ddpmon.analysis.steps.window import Window
from ddpmon.analysis.steps.world import MEANED
from tests.worlds import own_times, world_with


def from_scratch(world):
    """The same steps without anything that was kept."""
    return dataclasses.replace(world)


def check(world):
    fresh = from_scratch(world)
    assert not fresh.means
    for name in MEANED if len(world) else ():
        assert np.allclose(world.mean(name), fresh.mean(name), rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 99),
    steps=st.integers(1, 40),
    parts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 120)), min_size=1, max_size=12),
)
def test_what_is_kept_is_what_is_computed_from_scratch(seed, steps, parts):
    """Parts of any length, ranks that come and go, a window that is moved to the front of its buffers."""
    window = Window(steps)
    for i, (ranks, count) in enumerate(parts):
        window.append(world_with(own_times(count, ranks, noise=0.3, seed=seed + i)))
        for world in (window.world(), window.world(seconds=0.2, at_least=7)):
            assert set(world.means) == set(MEANED)
            check(world)
            check(world.between(len(world) // 3, len(world) - 1))


@pytest.mark.parametrize("fault", ["none", "late", "burst", "two", "periodic", "moving"])
def test_the_findings_and_means_of_a_window_are_those_from_scratch(fault):
    own = own_times(700, 4, noise=0.05, seed=1)
    if fault in {"late", "two"}:
        own[400:, 2, 1] += 12
    if fault == "two":
        own[300:, 1, 0] += 9
    if fault == "burst":
        own[350:420, 3, 2] += 12
    if fault == "periodic":
        own[::10, 0, 4] += 40
    if fault == "moving":
        own[np.arange(700), np.arange(700) % 4, 1] += 15
    everything = world_with(own)
    window, detector, past, slowdowns, before = Window(200), Detector(everything.ranks), Past(), (), []
    for first in range(0, 700, 9):
        part = everything.between(first, first + 9)
        for keeper in (window, detector, past):
            keeper.append(part)
        if first % 5:
            continue
        world = window.world()
        fresh, signals, hosts = from_scratch(world), detector.signals(), dict.fromkeys(world.ranks, "here")
        described = [describe(one, past, signals, hosts, slowdowns) for one in (world, fresh)]
        found = [
            findings(one, Evidence(slowdowns=told), before) for one, told in zip((world, fresh), described, strict=True)
        ]
        assert [rounded(f) for f in found[0]] == [rounded(f) for f in found[1]]
        slowdowns, before = described[0], found[0]
        summary, again = summarise(world), summarise(fresh)
        assert summary.step_ms_p95 == again.step_ms_p95
        assert astuple(summary.sums.efficiency) == pytest.approx(astuple(again.sums.efficiency))
    assert bool(before) == (fault not in {"none", "burst"})


def rounded(finding):
    """Sums that were kept differ from new ones in their last digits."""
    evidence = {key: round(value, 6) if isinstance(value, float) else value for key, value in finding.evidence.items()}
    return (
        finding.kind,
        finding.severity,
        finding.text,
        finding.ranks,
        finding.since_step,
        finding.until_step,
        evidence,
    )
