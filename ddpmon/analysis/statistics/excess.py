"""By how much a rank's own time exceeds its peers', and how far chance alone carries a mean of it.

A median of five steps goes first: single long steps (a collection of garbage, a hiccup of the scheduler, a
checkpoint) are taken out and steps in level stay sharp (Tukey's running median).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints

SCALES = (1, 2, 4, 8, 16, 32, 64)
"""Lengths of the blocks whose means are compared; below 8 only in a window too short for that."""
FEWEST_BLOCKS = 6
SOME = 64
"""Peers that are enough to tell what is usual; fewer than twice as many are taken."""
SMOOTHED = 4
"""Steps by which a running median of five is shorter than what it is taken of."""
APART = 8
LASTS = 32
ENOUGH = 8
UNSEEN = 0.015
UNSEEN_STEPS = 40
"""Wandering that a short window cannot have shown yet: of this share of the own time, over so many steps."""


def over_peers(values: Floats) -> Floats:
    """Each value less the median of the others in its row: [S, R] -> [S, R]."""
    count = values.shape[1]
    over: Floats = np.zeros_like(values)
    if count < 2:
        return over
    half = count // 2
    if count % 2 == 0:
        low, high = np.partition(values, (half - 1, half), axis=1)[:, half - 1 : half + 1].T
        over -= np.where(values <= low[:, None], high[:, None], low[:, None])
        over += values
        return over
    low, middle, high = np.partition(values, (half - 1, half, half + 1), axis=1)[:, half - 1 : half + 2].T[:, :, None]
    over -= np.where(values < middle, middle + high, np.where(values > middle, low + middle, low + high)) / 2
    over += values
    return over


def some_of(peers: Ints) -> Ints:
    """As many of these columns as are enough to tell what is usual, from all over them."""
    return peers[:: max(1, len(peers) // SOME)]


def steady(series: Floats) -> Floats:
    """Running median of five along the first axis; SMOOTHED shorter."""
    if len(series) <= SMOOTHED:
        return series[:0]
    a, b, c, d, e = (series[i : len(series) - SMOOTHED + i] for i in range(SMOOTHED + 1))
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))
    middle: Floats = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
    return middle


def running_total(series: Floats) -> Floats:
    """[S, ...] -> [S + 1, ...] Sums of all rows before each."""
    total: Floats = np.zeros((len(series) + 1, *series.shape[1:]))
    np.cumsum(series, axis=0, out=total[1:])
    return total


@dataclass(frozen=True)
class Chance:
    """How far the mean excess over n neighbouring steps strays by chance, for each rank.

    The variance of block means at several block lengths, half the mean square of their differences (von Neumann,
    1941; a lasting difference between ranks is no noise that way), APART steps apart so that noise that stays alike
    for some steps counts for what it is, and without the largest ones, which may hold the change that is looked for
    (where there are ENOUGH: its beginning and its end).
    Beyond the longest block that the window holds often enough it falls like 1/n ("batch means", Schmeiser, 1982), but
    not before LASTS steps: a short window cannot show how long its noise lasts. A rank's variance counts as its own
    or, if larger, the mean of all ranks.
    """

    lengths: Ints
    variance: Floats
    """[scales, R]"""
    freedom: Ints
    """[scales] Degrees of freedom of the mean of all ranks."""
    untrimmed: Floats
    """[scales] By how much leaving the largest squares out makes the variance of normal values too small."""
    unseen_ms: float
    """Standard deviation of wandering that may be there unseen."""

    def bound_ms(self, steps: int, deviations: float) -> Floats:
        """[R] What the mean over so many neighbouring steps exceeds as rarely as a normal value its `deviations`.

        With the first term that takes a normal quantile to Student's (Abramowitz and Stegun, 26.7.5): few blocks
        tell their variance badly.
        """
        place = int(np.searchsorted(self.lengths, steps, side="right")) - 1
        student = deviations * (1 + (deviations**2 + 1) / (4 * self.freedom[place]))
        shrink = min(1.0, max(float(self.lengths[place]), LASTS) / steps)
        unseen = self.unseen_ms**2 * min(1.0, UNSEEN_STEPS / steps)
        variance = np.maximum(self.variance[place], self.variance[place].mean())
        # What the largest squares, that were left out, would add tells in many ranks; how few there are, in few ranks.
        normal = max(student, deviations * float(self.untrimmed[place]) ** 0.5)
        bound: Floats = np.sqrt(normal**2 * variance * shrink + deviations**2 * unseen)
        return bound

    def of_a_typical_rank(self) -> Chance:
        """The same for one rank whose variance is the median: that of a rank with a change in it is not among it."""
        return replace(self, variance=np.median(self.variance, axis=1, keepdims=True))

    def per_step(self, column: int) -> float:
        """Variance of a long sum of the column, over its steps: that of a step, and more where noise lasts."""
        return float(max(self.variance[0, column], self.variance[0].mean()) * self.lengths[0])


@cache
def _untrimmed(share: float) -> float:
    """The mean square of normal values over that of the smallest `share` of them."""
    edge = NormalDist().inv_cdf((1 + share) / 2)
    return share / (share - 2 * edge * NormalDist().pdf(edge))


def chance(total: Floats, typical_ms: float) -> Chance:
    """The noise of excesses, S at least 6. total: [S + 1, R] their `running_total`; typical_ms: a typical own time."""
    steps, ranks = len(total) - 1, total.shape[1]
    lengths, rows, freedom, trimmed = [], [], [], []
    usable = [length for length in SCALES if steps // length >= FEWEST_BLOCKS]
    for length in [n for n in usable if n >= 8] or usable[-1:]:
        blocks = steps // length
        edges = steps - blocks * length + np.arange(blocks + 1) * length
        means = np.diff(total[edges], axis=0) / length
        apart = max(1, min(APART // length, blocks // 4))
        squares = np.square(means[apart:] - means[:-apart])
        left = len(squares) - (2 * apart if len(squares) >= ENOUGH else apart)
        variance = np.partition(squares, left - 1, axis=0)[:left].mean(axis=0) / 2
        lengths.append(length)
        rows.append(variance)
        trimmed.append(_untrimmed(left / len(squares)))
        # Blocks inside APART tell the same; and of two ranks each one's excess is the other's.
        apart_from = ranks if ranks > 2 else 1
        freedom.append(max(2, apart_from * left // (2 * max(1, APART // length))))
    return Chance(np.array(lengths), np.array(rows), np.array(freedom), np.array(trimmed), UNSEEN * typical_ms)
