"""Ranks that are late for many steps, each in its turn, then another: no rank is slow, and yet every step waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.statistics.arrays import median, medians
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

ALIKE = Threshold(
    0.25,
    of="correlation of the means of neighbouring blocks of eight steps, of the typical rank",
    why="Noise of single steps has 0.00, within 0.05; noise that stays alike for 33 steps has 0.78"
    " (benchmarks/calibration.py).",
    keeps=0.5,
)
TURN_STEPS = Threshold(
    200,
    of="steps in the window, where turns take many steps",
    why="A judgement: ten turns of twenty steps.",
)
SHORTEST_TURN = Threshold(
    16,
    of="steps for which a rank is late before another one is, as a rule",
    why="A judgement: shorter turns are reported, where they stand apart, as another rank each step.",
    keeps=0.5,
)
TURN_CHANGES = Threshold(
    4,
    of="changes of the last rank from one block of eight steps to the next",
    why="A judgement: ranks that change places less often may each be late for a reason of its own.",
)
ONE_RANKS = Threshold(
    0.6,
    of="share of blocks of eight steps in which one rank is the last",
    why="A judgement: above it, it is that rank's matter and not that of ranks that take turns.",
)
FEWEST_RANKS = Threshold(
    3,
    of="ranks without a finding of their own",
    why="Of two, one is late whenever the other is early.",
)
TURN_BLOCK = 8
"""Steps over which single steps' noise is averaged away."""


@dataclass(frozen=True)
class Turns:
    """Who takes turns: columns that were the last, steps of a turn, and by how much a turn is over the typical rank."""

    columns: list[int]
    steps: int
    over_ms: float


def turns(world: World, without: Collection[int], *, held: bool) -> Turns | None:
    """Whether ranks take turns of many steps. without: columns that are late otherwise. held: they did till now."""
    columns = np.delete(np.arange(len(world.ranks)), list(without))
    if not FEWEST_RANKS.reached(len(columns)) or not TURN_STEPS.reached(len(world)):
        return None
    total = world.total_ms
    count = (len(total) - 1) // TURN_BLOCK
    means = np.diff(total[len(total) - 1 - count * TURN_BLOCK :: TURN_BLOCK][:, columns], axis=0) / TURN_BLOCK
    strays = means - medians(means)[:, None]
    strays -= medians(strays.T)  # who is late for good takes no turns
    # Of the typical one: a rank that is late from some step on is alike for long as well, and is alone in it.
    each = (strays[1:] * strays[:-1]).sum(axis=0) / np.maximum(np.square(strays).sum(axis=0), 1e-30)
    alike = median(each)
    last = means.argmax(axis=1)
    changes = int((np.diff(last) != 0).sum())
    steps = round(count * TURN_BLOCK / (changes + 1))
    if (
        not ALIKE.reached(alike, held=held)
        or ONE_RANKS.reached(float(np.bincount(last).max()) / count)
        or not TURN_CHANGES.reached(changes)
        or not SHORTEST_TURN.reached(steps, held=held)
    ):
        return None
    # Of single steps' noise that is left in a block's mean the next block has nothing.
    over = float((strays.max(axis=1) - medians(strays)).mean()) * alike
    return Turns(columns[np.unique(last)].tolist(), steps, over)
