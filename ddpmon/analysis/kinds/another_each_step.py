"""Whether another rank is late at each step, by a window alone: one stands apart in each, or times follow the work.

Noise makes one rank the last of every step too: so a rank must stand apart from all others by far more than those lie
apart (of two ranks, the one or the other is late and they hardly ever arrive together), or own times follow the samples
or tokens of each step.
"""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.kinds.whole_world import STAYS
from ddpmon.analysis.statistics.arrays import Floats, median, medians, quantile
from ddpmon.analysis.statistics.excess import SMOOTHED
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

FEW, MANY = 24, 60
"""Last steps that are looked at: where it is plain two dozen tell it."""
FEWEST_LEVELS = 5
"""Ranks of which each is late in few enough of five steps that their median is without it (0.06 of the medians)."""
BEGINS = {FEW: 2.0, MANY: 1.2}
"""By how many times they must exceed what is asked for: few steps are weak evidence."""
IN_MOST = {FEW: 2 / 3, MANY: 0.6}
"""Share of those steps that must show it to begin with: of many ranks that each have a long step now and then, some one
has in a fourth of all steps, and by chance in half of two dozen."""
APART = Threshold(
    2.5,
    of="times as far as the others lie apart that the last one stands apart, in the median step",
    why="Noise alone has less: normal own times 1.0 with three ranks and 0.5 with four, lognormal ones (sigma 1)"
    " 2.3 and 1.2 (20,000 steps drawn).",
    keeps=STAYS,
)
TOGETHER = Threshold(
    0.12,
    of="share of steps in which two ranks are less than half the median distance apart",
    why="Noise has over 25% of them (half the median distance of normal values: 26%).",
    below=True,
    keeps=STAYS,
)
LATE = Threshold(
    0.08,
    of="share of a typical own time by which the last one is late, in the median step",
    why="A judgement: noise that all ranks have makes the last one later than the next by as much now and then.",
    keeps=STAYS,
)
CHANGES = Threshold(
    0.5,
    of="share of the changes of the last rank that independent steps would have, for more than two ranks",
    why="A judgement: a rank that is late for stretches of steps is another matter (`turns`, `straggler`).",
)
CHANGES_OF_TWO = Threshold(
    0.2,
    of="share of steps whose last rank is another than the step's before, of two ranks",
    why="A judgement: independent steps have half; of two ranks one may be late in several steps in a row.",
)
UNEVEN = Threshold(
    0.02,
    of="share of the mean count of samples or tokens by which ranks' counts differ, to be compared with their times",
    why="A judgement: smaller differences explain no lateness that is worth a finding.",
)
TYPICAL_OTHERS = 8
"""Ranks above which the median stands for the others; of fewer, the fastest does, as the last ones shift the median."""
MOST = Threshold(
    0.6,
    of="share of critical steps that one rank has",
    why="A judgement: above it, it is that rank's matter and not that of ranks that take turns.",
)
FOLLOWS = Threshold(
    0.8,
    of="correlation of own times with work, within steps",
    why="A judgement: work then explains two thirds of the variance (0.8 squared).",
    keeps=STAYS,
)


def begins(world: World) -> bool:
    """Whether some number of last steps shows it, and both halves of them do: a burst of noise comes once."""
    for steps, scale in BEGINS.items():
        recent = world.last(steps)
        half = len(recent) // 2
        parts = recent.between(0, half), recent.between(half, len(recent))
        if shows(recent, scale, IN_MOST[steps]) and all(shows(part, STAYS) for part in parts):
            return True
    return False


def shows(world: World, scale: float, share: float = 0.5) -> bool:
    """Whether it is in these steps. scale: of what is asked for. share: of the steps, that must show as much."""
    most = MOST.enter + 0.1 * (len(world.ranks) == 2)
    typical = median(world.own_ms[:: max(1, len(world) // MANY)].ravel())
    over = _over_its_neighbours(world)
    is_one_rank = len(over) > 0 and np.bincount(over.argmax(axis=1)).max() > most * len(over)
    if len(over) and not is_one_rank and _stands_apart(over, typical, scale, share):
        return True
    if np.nan_to_num(world.critical_share).max() > most:
        return False
    return (
        _stands_apart(world.own_ms, typical, scale, share) or work_followed(world)[1] >= min(scale, 1.0) * FOLLOWS.enter
    )


def lateness_of_the_last(world: World) -> Floats:
    """[S] By how much the last rank of each step is late, beyond its own level where that can be told."""
    over = _over_its_neighbours(world)
    if not len(over):
        return world.lead_ms
    edge = SMOOTHED // 2
    return np.pad(over.max(axis=1), edge, mode="edge")


def _over_its_neighbours(world: World) -> Floats:
    """[S - 4, R] What each rank is late by beyond its own level there, which may wander: a running median of steps.

    Of few ranks each is late too often for its level to be without it: nothing.
    """
    if len(world.ranks) < FEWEST_LEVELS or len(world) <= SMOOTHED:
        return world.own_ms[:0]
    over: Floats = world.excess_ms[SMOOTHED // 2 : -SMOOTHED // 2] - world.smooth_ms
    return over


def _stands_apart(own: Floats, typical: float, scale: float, share: float) -> bool:
    """Whether in a share of the steps one rank is late by itself, and it changes who. typical: own time."""
    ranks = own.shape[1]
    if ranks == 2:
        apart = np.ptp(own, axis=1)
        middle = median(apart)
        same = float((apart < middle / 2).mean())
        alternates = same <= TOGETHER.enter / scale and _changes(own) >= CHANGES_OF_TWO.enter
        return bool(middle >= scale * LATE.enter * typical and alternates)
    top = np.partition(own, (ranks - 2, ranks - 1), axis=1)
    gap = top[:, -1] - top[:, -2]
    rest = top[:, -2] - medians(own) if ranks > TYPICAL_OTHERS else top[:, -2] - own.min(axis=1)
    middle = quantile(gap, 1 - share)
    return bool(
        middle >= scale * LATE.enter * typical
        and middle >= scale * APART.enter * median(rest)
        and _changes(own) >= CHANGES.enter * (1 - 1 / ranks)
    )


def _changes(own: Floats) -> float:
    """Share of steps whose last rank is another than the step's before."""
    last = own.argmax(axis=1)
    return float((np.diff(last) != 0).mean())


def work_followed(world: World) -> tuple[str, float]:
    """Whether ranks are late when they have more to do: unit, and correlation within steps."""
    for unit, counts in (("tokens", world.tokens), ("samples", world.samples)):
        uneven = counts - counts.mean(axis=1, keepdims=True)
        if counts.min() <= 0 or np.abs(uneven).mean() < UNEVEN.enter * counts.mean():
            continue
        over = world.excess_ms - world.excess_ms.mean(axis=1, keepdims=True)
        scale = float(np.sqrt(np.square(uneven).sum() * np.square(over).sum()))
        return unit, float((uneven * over).sum()) / scale if scale else 0.0
    return "", 0.0
