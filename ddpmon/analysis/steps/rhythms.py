"""Ranks that take longer every so many steps: logging, checkpoints, evaluation on one rank.

A long step is one whose excess over the peers leaves the rank's usual, and its neighbours, by at least an eighth of a
typical own time and NOISE times what it strays downwards. With a share q of steps long, chance lets at least h of n
places of one rhythm, and at most so many of the steps between them, be long with the tails of the binomial
distribution; times the rhythms tried it must stay below FALSE_ALARMS (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import log, log1p

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints, median, running_total
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

FALSE_ALARMS = Threshold(
    1e-5,
    of="probability that chance makes a rhythm as plain, over all rhythms tried; of all ranks, where it costs little",
    why="A judgement: far below one in a run, also where ranks are many and steps are looked at anew all the time.",
    below=True,
)
LONG = Threshold(
    0.12,
    of="share of a typical own time by which a step is longer than the rank's usual and than its neighbours",
    why="An eighth of a step, found in made-up worlds where noise cannot make it (tests/analysis/test_over_time.py).",
)
VERY_LONG = Threshold(
    0.25,
    of="the same",
    why="A judgement, tried first: among fewer long steps a rhythm stands out better.",
)
NOISE = Threshold(
    2.0,
    of="times what the rank's excess strays downwards (a third of its steps) that a long step exceeds its usual by",
    why="A judgement: what strays downwards is noise alone, whatever makes steps long.",
)
FEWEST = Threshold(
    4,
    of="long steps of a rhythm",
    why="A judgement: three equal distances; by chance two are equal far too often.",
)
KEPT = Threshold(
    0.8,
    of="share of the places of a rhythm that are long",
    why="A judgement: a rhythm may miss one of five, where another rank was later or the step was set apart.",
)
PAIRS = Threshold(
    0.6,
    of="share of neighbouring places of a rhythm that are both long",
    why="A judgement: a little less than the square of what is kept (0.8 * 0.8), since it only chooses what is tried.",
)
MISSED = Threshold(
    1,
    of="places without a long step among the last of a rhythm, as many as make one",
    why="A judgement: more of them end it; one that was reported may miss one more.",
    below=True,
    stay=2,
)
REPORTED = Threshold(
    1.01,
    of="times as fast without the rhythm",
    why="A judgement: what costs less than 1% is not reported. What was reported stays as long as it is a rhythm.",
    stay=0.0,
)
LARGEST_SHARE = Threshold(
    0.6,
    of="share of steps that are long, of a column with a rhythm",
    why="Of every two steps one may be long, and some by chance; above it the long ones are the usual ones.",
    below=True,
)
PERIODS = 20
"""Rhythms of a column that are tried, the shortest: each one makes chance likelier to be one of them."""
MANY = 200
"""Places of which the binomial tail is summed, at most: more would take time and decide nothing else."""
LOG_FACTORIAL: Floats = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, MANY + 1)))])
PAIRED = 40
"""Long steps that are so few that going through their pairs is quicker than a Fourier transform."""
FAR = 64
"""Times as many steps between the first and the last of them as there are long ones, from which on those are few."""


@dataclass(frozen=True)
class Rhythm:
    """A column is long at every `every`-th step, counted by step numbers."""

    column: int
    every: int
    at: Ints
    """Indices of the long steps."""
    over_ms: float
    """By how much a long step exceeds the usual."""
    by_chance: float
    """At most: that a rank without one has as plain a rhythm."""


def rhythms(world: World, had_one: Collection[int] = ()) -> list[Rhythm]:
    """The columns with a rhythm, worst first. had_one: columns that had one at the last judgement."""
    if len(world.ranks) < 2 or len(world) < 2 * FEWEST.enter:
        return []
    least: list[float | Floats] = [max(1.0, share.enter * world.usual_ms) for share in (VERY_LONG, LONG)]
    columns = np.union1d(_may_gain(world, max(1.0, LONG.enter * world.usual_ms)), np.array(list(had_one), np.int64))
    by_column: dict[int, Rhythm] = {}
    if len(columns):  # the long steps of a rhythm are about as long, however many shorter ones noise has
        excess = world.excess_ms[:, columns]
        longest = np.partition(excess, -FEWEST.enter, axis=0)[-FEWEST.enter] / 2
        least = [np.maximum(longest, least[0]), *least]
    for least_ms in least if len(columns) else ():  # among fewer long steps a rhythm stands out better
        for rhythm in _rhythms(world, columns, least_ms, had_one):
            by_column.setdefault(rhythm.column, rhythm)
    return sorted(by_column.values(), key=lambda rhythm: -rhythm.over_ms / rhythm.every)


def _may_gain(world: World, least_ms: float) -> Ints:
    """The columns of which a rhythm of steps that are long by so many ms could be worth telling, whatever its period.

    Only where a rank is the slowest does mending it gain anything, and no more than its lead over the second.
    """
    steps, slowest = np.arange(len(world)), world.own_ms.argmax(axis=1)
    before, after = np.abs(steps - 1), len(world) - 1 - np.abs(steps[::-1] - 1)
    neighbours = (world.excess_ms[before, slowest] + world.excess_ms[after, slowest]) / 2
    leads = np.flatnonzero(world.excess_ms[steps, slowest] - neighbours > least_ms)
    leads = leads[np.lexsort((-leads, slowest[leads]))]  # by rank, the last first
    whose = slowest[leads]
    gain = world.slowest_ms[leads] - np.partition(world.own_ms[leads], -2, axis=1)[:, -2]
    since = running_total(gain)
    since = since[1:] - since[np.searchsorted(whose, whose)]
    # From a later step on a rhythm would be of too few steps.
    step_since = world.step_ms[::-1].cumsum()[::-1][np.minimum(leads, len(world) - FEWEST.enter)]
    return np.unique(whose[since > (1 - 1 / REPORTED.enter) * step_since])


def _rhythms(world: World, columns: Ints, least_ms: float | Floats, had_one: Collection[int]) -> Iterator[Rhythm]:
    """Those of steps that are long by at least so many ms, one number or one of each column."""
    excess = world.excess_ms[:, columns]
    over_neighbours = _over_neighbours(excess)
    # A third of the way up, since of every two steps one may be long; what is below that tells the noise.
    third = len(world) // 3
    usual = np.partition(excess, third, axis=0)[third]
    bound = np.maximum(NOISE.enter * 3 * (usual - np.minimum(excess, usual)).mean(axis=0), least_ms)
    # Over its neighbours as well: a stretch of long steps is no rhythm, though every second one of it is long.
    long = (excess - usual > bound) & (over_neighbours > bound)
    share = long.mean(axis=0)
    for place in np.flatnonzero((long.sum(axis=0) >= FEWEST.enter) & (share <= LARGEST_SHARE.enter)).tolist():
        column = int(columns[place])
        most = MISSED.asked(column in had_one)
        rhythm = _rhythm(world.step, np.flatnonzero(long[:, place]), float(share[place]), most)
        if rhythm is not None:
            every, kept, by_chance = rhythm
            over = median(excess[kept, place]) - float(usual[place])
            own = _over_neighbours(world.own_ms[:, [column]])[kept, 0]
            if median(own) < over / 2:
                continue  # the others are short in its rhythm
            yield Rhythm(column, every, kept, over, by_chance)


def _over_neighbours(values: Floats) -> Floats:
    """[S, R] Each value less the mean of the one before and the one after."""
    padded = np.vstack([values[1:2], values, values[-2:-1]])
    over: Floats = values - (padded[:-2] + padded[2:]) / 2
    return over


def _rhythm(steps: Ints, at: Ints, share: float, missed: float) -> tuple[int, Ints, float] | None:
    """The period of long steps, those that keep to it, and the chance of that; None if chance can bring them about.

    missed: it is over if more of the last places, as many as make a rhythm, had no long step.
    """
    numbers, lost = steps[at], int(steps[-1] - steps[0]) + 1 - len(steps)
    seen = _distances(numbers)
    lags = np.arange(len(seen))
    pairs = np.maximum(FEWEST.enter - 1, (numbers[-1] - numbers[0]) / np.maximum(lags, 1) - 1)
    often = seen >= PAIRS.enter * pairs
    lately = _distances(numbers[-2 * FEWEST.enter :])  # one that has just begun has few of all pairs
    often[: len(lately)] |= lately >= FEWEST.enter - 1
    candidates = lags[often]
    for every, phase in _kept(numbers, candidates[candidates > 1][:PERIODS], lost):
        kept = at[numbers % every == phase]
        hits, first, last = len(kept), int(steps[kept[0]]), int(steps[kept[-1]])
        places = int((steps[kept[0] : kept[-1] + 1] % every == phase).sum())
        if hits < KEPT.enter * places:
            continue
        beside = int(((numbers >= first) & (numbers <= last)).sum()) - hits
        others = int(((steps >= first) & (steps <= last)).sum()) - places
        by_chance = _at_least(hits - 1, places - 1, share) * (1 - _at_least(beside + 1, others, share))
        by_chance *= min(every, len(numbers)) * PERIODS
        if by_chance < FALSE_ALARMS.enter:
            latest = np.isin(steps[steps % every == phase][-FEWEST.enter :], numbers)
            if latest.sum() < len(latest) - missed:
                return None  # and so its multiples are over
            return every, kept, by_chance
    return None


def _kept(numbers: Ints, periods: Ints, lost: int) -> Iterator[tuple[int, int]]:
    """Those periods, and at which of their places, that enough of these rising numbers keep to.

    All at once, since few do. lost: so many steps between the first and the last are missing.
    """
    if not len(periods):
        return
    rest = numbers % periods[:, None]
    begins = np.cumsum(periods) - periods
    counts = np.bincount((rest + begins[:, None]).ravel(), minlength=int(periods.sum()))
    hits = np.maximum.reduceat(counts, begins)
    phases = np.array([counts[begin : begin + every].argmax() for begin, every in zip(begins, periods, strict=True)])
    in_time = rest == phases[:, None]
    first, last = numbers[in_time.argmax(axis=1)], numbers[-1 - in_time[:, ::-1].argmax(axis=1)]
    enough = (hits >= FEWEST.enter) & (hits >= KEPT.enter * ((last - first) // periods + 1 - lost))
    yield from zip(periods[enough].tolist(), phases[enough].tolist(), strict=True)


def _distances(numbers: Ints) -> Ints:
    """How many pairs of these rising numbers lie so far apart, by distance: their autocorrelation."""
    span = int(numbers[-1] - numbers[0]) + 1
    if span > FAR * len(numbers) or len(numbers) <= PAIRED:  # steps were lost, or are few: pair by pair
        gaps = numbers[:, None] - numbers[None, :]
        return np.bincount(gaps[gaps > 0], minlength=2)
    there = np.zeros(span)
    there[numbers - numbers[0]] = 1.0
    spectrum = np.fft.rfft(there, 1 << (2 * span - 1).bit_length())
    seen: Ints = np.rint(np.fft.irfft(np.square(np.abs(spectrum)))[:span]).astype(np.int64)
    return seen


def _at_least(hits: int, places: int, share: float) -> float:
    """Probability of at least so many hits; of more than MANY places as many as those would have."""
    if places > MANY:
        hits, places = round(hits * MANY / places), MANY
    if hits <= 0 or not 0 < share < 1:
        return float(hits <= 0 or (share >= 1 and hits <= places))
    k = np.arange(hits, places + 1)
    ways = LOG_FACTORIAL[places] - LOG_FACTORIAL[k] - LOG_FACTORIAL[places - k]
    return float(np.exp(ways + k * log(share) + (places - k) * log1p(-share)).sum())
