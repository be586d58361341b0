"""What kinds that hold all ranks back alike have in common."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Finding

STAYS = 0.7
"""Share of its threshold that keeps a finding: the mean of 40 steps that stray by 20% strays by 3%, far from 30%."""
FEWEST_STEPS = Threshold(
    FEWEST,
    of="steps in the window",
    why="A judgement: a mean over fewer follows single odd steps (of 40 that stray by 20% it strays by 3%).",
)
SHORTEST_MS = Threshold(
    5.0,
    of="ms of the mean step",
    why="A judgement: shorter steps are all overhead, and shares of them say little.",
)


def mean_step_ms(world: World) -> float:
    """Of the window."""
    return float(world.step_ms.mean())


def since(world: World, held: Finding | None) -> int:
    """Its first step: as reported before, else the first of the window."""
    return held.since_step if held and held.since_step is not None else int(world.step[0])


def most_ranks(by_rank: Floats) -> float:
    """Return what most ranks reach at least: half of them are not all."""
    return float(np.quantile(by_rank, 0.5, method="lower"))
