"""By how much a rank's own time exceeds its peers', and how far chance alone carries a mean of it.

A median of five steps goes first: single long steps (a collection of garbage, a hiccup of the scheduler, a
checkpoint) are taken out and steps in level stay sharp (Tukey's running median).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.world import Floats, Ints

SCALES = (1, 2, 4, 8, 16, 32, 64)
"""Lengths of the blocks whose means are compared; below 8 only in a window too short for that."""
FEWEST_BLOCKS = 6
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


def steady(series: Floats) -> Floats:
    """Running median of five along the first axis; four shorter."""
    a, b, c, d, e = (series[i : len(series) - 4 + i] for i in range(5))
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))
    middle: Floats = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
    return middle


@dataclass(frozen=True)
class Chance:
    """How far the mean excess over n neighbouring steps strays by chance, for each rank.

    The variance of block means at several block lengths, half the mean square of their differences (von Neumann,
    1941; a lasting difference between ranks is no noise that way), APART steps apart so that noise that stays alike
    for some steps counts for what it is, and without the largest ones, which may hold the change that is looked for
    (where there are ENOUGH: its beginning and its end).
    Beyond the longest block that the window holds often enough it falls like 1/n ("batch means", Schmeiser, 1982), but
    not before LASTS steps: a short window cannot show how long its noise lasts. A rank's variance is its own or, if
    larger, the mean of all ranks.
    """

    lengths: Ints
    variance: Floats
    """[scales, R]"""
    freedom: Ints
    """[scales] Degrees of freedom of the mean of all ranks."""
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
        bound: Floats = np.sqrt(student**2 * self.variance[place] * shrink + deviations**2 * unseen)
        return bound


def chance(series: Floats, typical_ms: float) -> Chance:
    """The noise of [S, R] excesses, S at least 6. typical_ms: own time of a typical rank."""
    total = np.vstack([np.zeros(series.shape[1]), np.cumsum(series, axis=0)])
    lengths, rows, freedom = [], [], []
    usable = [length for length in SCALES if len(series) // length >= FEWEST_BLOCKS]
    for length in [n for n in usable if n >= 8] or usable[-1:]:
        blocks = len(series) // length
        edges = len(series) - blocks * length + np.arange(blocks + 1) * length
        means = np.diff(total[edges], axis=0) / length
        apart = max(1, min(APART // length, blocks // 4))
        squares = np.square(means[apart:] - means[:-apart])
        left = len(squares) - (2 * apart if len(squares) >= ENOUGH else apart)
        variance = np.partition(squares, left - 1, axis=0)[:left].mean(axis=0) / 2
        lengths.append(length)
        rows.append(np.maximum(variance, variance.mean()))
        # Blocks inside APART tell the same; and of two ranks each one's excess is the other's.
        ranks = series.shape[1] if series.shape[1] > 2 else 1
        freedom.append(max(2, ranks * left // (2 * max(1, APART // length))))
    return Chance(np.array(lengths), np.array(rows), np.array(freedom), UNSEEN * typical_ms)
