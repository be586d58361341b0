"""What kinds that hold all ranks back alike have in common."""

from __future__ import annotations

from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding

FEWEST_STEPS = 40
SHORTEST_MS = 5.0
"""Shorter steps are all overhead: shares of them say little."""
STAYS = 0.7
"""Share of its threshold that keeps a finding."""


def mean_step_ms(world: World) -> float:
    """Of the window."""
    return float(world.step_ms.mean())


def since(world: World, held: Finding | None) -> int:
    """Since when: as was told before, else since the window begins."""
    return held.since_step if held and held.since_step is not None else int(world.step[0])


def asked(threshold: float, held: Finding | None) -> float:
    """How much of it there must be."""
    return threshold * (STAYS if held else 1.0)
