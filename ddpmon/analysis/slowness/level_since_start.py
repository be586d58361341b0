"""The level of a rank since the start of the run, beside the other ranks."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ddpmon.analysis.slowness.series import BLOCK, SMALLEST, STEADY
from ddpmon.analysis.slowness.spread import FEW_RANKS, MEMORY, z_of_t
from ddpmon.analysis.statistics.arrays import Floats, medians

MOST_BATCHES = 32
"""Batches at which neighbours are joined: half as many tell the variance to a quarter."""
TESTED_AT = (5, 6, 8, 10, 13, 16, 20, 25, 31)
"""Counts of batches at which the level is tested: each time a quarter more steps than the last time or so."""
UNSEEN_ERRORS = 3.5
"""Standard errors of the covariance of neighbouring steps by which noise may wander more than it shows: chance exceeds
it in one of 4,000 runs."""
NU_SHARE = 0.6
"""Degrees of freedom of the lugsail estimate, as a share of those of its batches: it is a difference of two of them."""


class LevelSinceStart:
    """Batch means over all steps, at most 32: when there are so many, neighbours are joined.

    The long-run variance is estimated from batches of two lengths n and 2 n, as 2 v(2n) - v(n), whose bias for
    correlated noise is positive where that of batch means is negative (lugsail: Vats and Flegal, Biometrika 109, 2022).
    Noise that wanders for longer than the run has lasted does not show in batches. It is as large as the covariance of
    neighbouring steps, at most: the upper end of what that may be is added, and fades as the run outlasts it.
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._means = np.zeros((MOST_BATCHES, series, ranks))
        self._batches = 0
        self._partial = np.zeros((series, ranks))
        self._partial_blocks = 0
        self._batch_blocks = 1
        self._steps = 0
        self._moments = np.zeros((5, series, ranks))
        """Means of a step and of its square; of two neighbouring steps of a block: of each, and of their product."""

    def add_block(self, values: Floats, step_ms: float) -> Floats | None:
        """Add a block [P, BLOCK, R] and return z [P, R] of the level since the start, where it is time for a test."""
        before, after = values[:, :-1], values[:, 1:]
        moments = np.stack([each.mean(axis=1) for each in (values, values**2, before, after, before * after)])
        self._steps += BLOCK
        self._moments += BLOCK / self._steps * (moments - self._moments)
        self._partial += values.mean(axis=1)
        self._partial_blocks += 1
        if self._partial_blocks < self._batch_blocks:
            return None
        self._means[self._batches] = self._partial / self._batch_blocks
        self._batches += 1
        self._partial[:], self._partial_blocks = 0.0, 0
        z = self._test(step_ms) if self._batches in TESTED_AT else None
        if self._batches == MOST_BATCHES:
            self._means[: MOST_BATCHES // 2] = (self._means[0::2] + self._means[1::2]) / 2
            self._batches //= 2
            self._batch_blocks *= 2
        return z

    def _test(self, step_ms: float) -> Floats:
        means, ranks = self._means[: self._batches], self._means.shape[2]
        level, pairs = means.mean(axis=0), self._batches // 2
        double = ((means[0 : 2 * pairs : 2] + means[1 : 2 * pairs : 2]) / 2).var(axis=0, ddof=1) * 2
        batched = np.maximum(double, 2 * double - means.var(axis=0, ddof=1)) / self._batches
        mean, square, before, after, product = self._moments
        variance, covariance = np.maximum((square - mean**2, product - before * after), 0.0)
        fades = min(1.0, 2 * MEMORY / self._steps)
        others = max(ranks - 1, 1)
        unseen = fades * UNSEEN_ERRORS / sqrt(self._steps * others)
        of_batches, wandering = _of_others(batched), fades * _of_others(covariance)
        spread = of_batches + wandering + unseen * _of_others(variance) + (STEADY * step_ms) ** 2
        uncertain = of_batches**2 / (NU_SHARE * (pairs - 1) * others) + wandering**2 / max(ranks - 2, 1)
        freedom = spread**2 / np.maximum(uncertain, 1e-3 * spread**2)
        spread = np.maximum(spread, batched + fades * covariance)
        if ranks > FEW_RANKS:
            level -= medians(level)[:, None]
        beyond = np.sign(level) * np.maximum(np.abs(level) - SMALLEST.enter * step_ms, 0.0)
        return z_of_t(beyond / np.sqrt(spread), freedom)


def _of_others(variances: Floats) -> Floats:
    """[P, R] -> [P, 1] Mean variance of all ranks but the noisiest, corrected for leaving that out."""
    ranks = variances.shape[1]
    if ranks <= FEW_RANKS:
        mean: Floats = variances.mean(axis=1, keepdims=True)
        return mean
    without: Floats = (variances.sum(axis=1) - variances.max(axis=1)) / (ranks - 1) * (1 + 1.5 / ranks)
    return without[:, None]
