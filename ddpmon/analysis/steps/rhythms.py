"""Ranks that take longer every so many steps: logging, checkpoints, evaluation on one rank.

A long step is one whose excess over the peers leaves the rank's usual, and its neighbours, by at least an eighth of a
typical own time and NOISE times what it strays downwards. With a share q of steps long, chance lets at least h of n
places of one rhythm, and at most so many of the steps between them, be long with the tails of the binomial
distribution; times the rhythms tried it must stay below FALSE_ALARMS (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import comb

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.steps.world import World

FALSE_ALARMS = 1e-5
LONG = (0.25, 0.12)
"""Of a typical own time."""
NOISE = 2.0
FEWEST = 4
"""Long steps that make a rhythm."""
KEPT = 0.8
"""Share of the places of a rhythm that are long."""
PAIRS = 0.6
"""Share of neighbouring places that are both long for a rhythm to be tried."""
MISSED = 2
"""Of the last FEWEST places of a rhythm that is known; more of them without a long step end it."""
PERIODS = 20
"""Rhythms that are tried."""
MANY = 200
TOLD = 1.01
"""Times faster without: a rhythm that costs less is not told."""


@dataclass(frozen=True)
class Rhythm:
    """A column is long at every `every`-th step, counted by step numbers."""

    column: int
    every: int
    at: Ints
    """Indices of the long steps."""
    over_ms: float
    """By how much a long step exceeds the usual."""


def rhythms(world: World, known: Collection[int] = ()) -> list[Rhythm]:
    """The columns with a rhythm, worst first. known: those that had one when last looked at."""
    if len(world.ranks) < 2 or len(world) < 2 * FEWEST:
        return []
    least = [max(1.0, share * float(np.median(world.typical_ms))) for share in LONG]
    columns = np.union1d(_may_gain(world, min(least)), np.array(list(known), np.int64))
    found: dict[int, Rhythm] = {}
    for least_ms in least if len(columns) else ():  # among fewer long steps a rhythm stands out better
        for rhythm in _rhythms(world, columns, least_ms, known):
            found.setdefault(rhythm.column, rhythm)
    return sorted(found.values(), key=lambda rhythm: -rhythm.over_ms / rhythm.every)


def _may_gain(world: World, least_ms: float) -> Ints:
    """The columns of which a rhythm of steps that are long by so many ms could be worth telling, whatever its period.

    Only where a rank is the slowest does mending it gain anything, and no more than its lead over the second.
    """
    columns, slowest = np.unique(world.own_ms.argmax(axis=1), return_inverse=True)
    over_neighbours = _over_neighbours(world.excess_ms[:, columns])[np.arange(len(world)), slowest]
    leads = np.flatnonzero(over_neighbours > least_ms)
    second = np.partition(world.own_ms[leads], -2, axis=1)[:, -2]
    gain = np.zeros((len(world), len(columns)))
    gain[leads, slowest[leads]] = world.slowest_ms[leads] - second
    gain_since, step_since = (values[::-1].cumsum(axis=0)[::-1] for values in (gain, world.step_ms))
    enough = gain_since[: 1 - FEWEST] > (1 - 1 / TOLD) * step_since[: 1 - FEWEST, None]
    return columns[enough.any(axis=0)]


def _rhythms(world: World, columns: Ints, least_ms: float, known: Collection[int]) -> Iterator[Rhythm]:
    """Those of steps that are long by at least so many ms."""
    excess = world.excess_ms[:, columns]
    over_neighbours = _over_neighbours(excess)
    # A third of the way up, since of every two steps one may be long; what is below that tells the noise.
    third = len(world) // 3
    usual = np.partition(excess, third, axis=0)[third]
    bound = np.maximum(NOISE * 3 * (usual - np.minimum(excess, usual)).mean(axis=0), least_ms)
    # Over its neighbours as well: a stretch of long steps is no rhythm, though every second one of it is long.
    long = (excess - usual > bound) & (over_neighbours > bound)
    share = long.mean(axis=0)
    for place in np.flatnonzero((long.sum(axis=0) >= FEWEST) & (share <= 0.6)).tolist():
        column = int(columns[place])
        missed = MISSED if column in known else MISSED - 1
        rhythm = _rhythm(world.step, np.flatnonzero(long[:, place]), float(share[place]), missed)
        if rhythm is not None:
            every, kept = rhythm
            over = float(np.median(excess[kept, place]) - usual[place])
            own = _over_neighbours(world.own_ms[:, [column]])[kept, 0]
            if np.median(own) < over / 2:
                continue  # the others are short in its rhythm
            yield Rhythm(column, every, kept, over)


def _over_neighbours(values: Floats) -> Floats:
    """[S, R] Each value less the mean of the one before and the one after."""
    padded = np.vstack([values[1:2], values, values[-2:-1]])
    over: Floats = values - (padded[:-2] + padded[2:]) / 2
    return over


def _rhythm(steps: Ints, at: Ints, share: float, missed: int) -> tuple[int, Ints] | None:
    """The period of long steps, and those that keep to it; None if chance can bring them about.

    missed: it is over if more of the last FEWEST places had no long step.
    """
    numbers = steps[at]
    gaps = numbers[:, None] - numbers[None, :]
    seen = np.bincount(gaps[gaps > 1], minlength=2)
    lags = np.arange(len(seen))
    candidates = lags[seen >= PAIRS * np.maximum(FEWEST - 1, (numbers[-1] - numbers[0]) / np.maximum(lags, 1) - 1)]
    for every in candidates[candidates > 1][:PERIODS].tolist():
        phase = int(np.bincount(numbers % every).argmax())
        in_time = numbers % every == phase
        places = int(((steps % every) == phase)[at[in_time][0] : at[in_time][-1] + 1].sum())
        hits = int(in_time.sum())
        if hits < FEWEST or hits < KEPT * places:
            continue
        first, last = numbers[in_time][[0, -1]]
        beside = int(((numbers >= first) & (numbers <= last)).sum()) - hits
        others = int(((steps >= first) & (steps <= last)).sum()) - places
        by_chance = _at_least(hits - 1, places - 1, share) * (1 - _at_least(beside + 1, others, share))
        tried = min(every, len(numbers)) * PERIODS
        if tried * by_chance < FALSE_ALARMS:
            last = np.isin(steps[steps % every == phase][-FEWEST:], numbers)
            return (every, at[in_time]) if last.sum() >= len(last) - missed else None  # and so its multiples are over
    return None


def _at_least(hits: int, places: int, share: float) -> float:
    """Probability of at least so many hits; of more than MANY places as many as those would have."""
    if places > MANY:
        hits, places = round(hits * MANY / places), MANY
    return float(sum(comb(places, k) * share**k * (1 - share) ** (places - k) for k in range(hits, places + 1)))
