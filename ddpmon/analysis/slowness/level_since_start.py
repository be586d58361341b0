"""The level of a rank since the start of the run, beside the other ranks."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.slowness.spread import FEW_RANKS, z_of_t
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.threshold import Threshold

MOST_BATCHES = 32
"""Batches at which neighbours are joined: half as many tell the variance to a quarter."""
TESTED_AT = (16, 20, 24, 28)
"""Counts of batches at which the level is tested: each time a quarter more steps than the last time or so."""
TOLERATED = Threshold(
    0.01,
    of="share of a step by which a rank's mean since the start may exceed the others'",
    why="A judgement: half of what costs 2% of the run, so that ranks that differ for good by little are no signals.",
)
START_Z = Threshold(
    5.3,
    of="z of a rank's mean since the start, 8 ranks",
    why="a normal value exceeds it in one of 17 million tests; a day has some 60 tests of 48 series.",
)
NU_SHARE = 0.6
"""Degrees of freedom of the lugsail estimate, as a share of those of its batches: it is a difference of two of them."""


class LevelSinceStart:
    """Batch means over all steps, at most 32: when there are so many, neighbours are joined.

    The long-run variance is estimated from batches of two lengths n and 2 n, as 2 v(2n) - v(n), whose bias for
    correlated noise is positive where that of batch means is negative (lugsail: Vats and Flegal, Biometrika 109, 2022).
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._means = np.zeros((MOST_BATCHES, series, ranks))
        self._batches = 0
        self._partial = np.zeros((series, ranks))
        self._partial_blocks = 0
        self._batch_blocks = 1

    def add_block(self, means: Floats, step_ms: float) -> Floats | None:
        """Add a block's means [P, R] and return z [P, R] of the level since the start, where it is time for a test."""
        self._partial += means
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
        short = _of_others(means.var(axis=0, ddof=1))
        double = _of_others(2 * ((means[0::2] + means[1::2]) / 2).var(axis=0, ddof=1))
        variance = np.maximum(double, 2 * double - short) / self._batches
        level = means.mean(axis=0)
        beyond = np.sign(level) * np.maximum(np.abs(level) - TOLERATED.enter * step_ms, 0.0)
        freedom = np.array(NU_SHARE * (self._batches // 2 - 1) * max(ranks - 1, 1))
        spread: Floats = np.sqrt(np.maximum(variance, (1e-4 * step_ms) ** 2))
        return z_of_t(beyond / spread, freedom)


def _of_others(variances: Floats) -> Floats:
    """[P, R] -> [P, 1] Mean variance of all ranks but the noisiest, corrected for leaving that out."""
    ranks = variances.shape[1]
    if ranks <= FEW_RANKS:
        mean: Floats = variances.mean(axis=1, keepdims=True)
        return mean
    without: Floats = (variances.sum(axis=1) - variances.max(axis=1)) / (ranks - 1) * (1 + 1.5 / ranks)
    return without[:, None]
