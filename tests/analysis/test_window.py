"""Test that a window that grows step by step equals one from scratch."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.analysis.steps.window import Window
from ddpmon.analysis.steps.world import MEANED
from tests.worlds import own_times, world_with


def check(world):
    fresh = dataclasses.replace(world)  # the same steps without anything that was kept
    assert not fresh.means
    for name in MEANED if len(world) else ():
        assert np.allclose(world.mean(name), fresh.mean(name), rtol=1e-9, atol=1e-9)


@settings(max_examples=10, deadline=None)
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
        for world in (window.as_world(), window.as_world(seconds=0.2, at_least=7)):
            assert set(world.means) == set(MEANED)
            check(world)
            check(world.steps_between(len(world) // 3, len(world) - 1))
