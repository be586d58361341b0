"""The steps of a window that means are taken over: those since its latest change of pace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.steps.summary import FEWEST_STEPS
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding


def since_change(world: World, findings: Sequence[Finding]) -> World:
    """Return the steps since the latest change that findings name, FEWEST_STEPS at least.

    Means across the change would describe neither side.
    """
    changes = [f for f in findings if kind_of(f).changes_level]
    begins = [f.since_step if f.until_step is None else f.until_step + 1 for f in changes]
    latest = max((step for step in begins if step is not None), default=0)
    first = min(int(np.searchsorted(world.step, latest)), len(world) - FEWEST_STEPS)
    return world.between(first, len(world)) if first > 0 else world
