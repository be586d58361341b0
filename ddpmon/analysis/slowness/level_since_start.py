"""The level of a rank since the start of the run, compared with the other ranks."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ddpmon.analysis.slowness.series import BLOCK_STEPS, MIN_CHANGE_SHARE, MIN_SPREAD_SHARE
from ddpmon.analysis.slowness.spread import FEW_RANKS, MEMORY, mean_correlation, z_of_t
from ddpmon.analysis.statistics.arrays import Floats, row_medians

MOST_BATCHES = 40
"""Number of batches at which pairs of neighbouring batches are merged. The remaining half still estimates the variance
to within a quarter."""
FIRST_TEST_STEPS, FIRST_TEST_VALUES, MORE = (15, 25), 75, 1.25
"""(minimum, maximum) number of steps before the first test; number of values (steps times other ranks) that the first
test needs; and the factor by which the number of steps grows until each further test. Of 1,300 simulated runs of two
ranks, seven had a false signal after 15 or 20 steps, and none after 25."""
UNSEEN_WANDER_ERRORS = 3.5
"""Standard errors that are added to the measured covariance of neighbouring steps, to get an upper bound of slowly
varying noise. By chance, the true value exceeds the bound in one of 4,000 runs."""
WANDERS_STEPS, MOST_SEEN = 4 * MEMORY, 6.0
"""Number of steps that, in a run of few ranks, tell as much about slowly varying noise as one more rank, and the
maximum number of ranks that steps replace in this way. Without this replacement, two ranks on busy cores, one of them
40 ms late in all its steps of 36 ms, had no finding in 276 steps. Of 4,800 simulated runs of two ranks in eight kinds
of noise, 1,000 steps each, two had a false signal, both with and without the replacement."""
NU_SHARE = 0.6
"""Degrees of freedom of the lugsail estimate of the variance, as a share of the degrees of freedom of plain
batch means. The share is below 1, because the lugsail estimate is a difference of two estimates."""


class LevelSinceStart:
    """Tests the mean of each series since the start of the run, with means of batches of steps.

    The long-run variance is estimated from batches of two lengths n and 2 n, as 2 v(2n) - v(n). For correlated noise,
    the bias of this estimate is positive, and the bias of plain batch means is negative (lugsail: Vats and Flegal,
    Biometrika 109, 2022). Noise that varies more slowly than the run has lasted does not show in batches, but its
    variance is at most the covariance of neighbouring steps. The upper end of that covariance's interval is therefore
    added, with a weight that falls as the run gets longer.
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._means = np.zeros((MOST_BATCHES, series, ranks))
        self._batches = 0
        self._batch_blocks = 0
        """Number of blocks in a batch; 0: batches are single steps."""
        self._partial = np.zeros((series, ranks))
        self._partial_blocks = self._steps = 0
        self._next_test = float(np.clip(FIRST_TEST_VALUES / max(ranks - 1, 1), *FIRST_TEST_STEPS))
        self._moments = np.zeros((5, series, ranks))
        """[5, P, R] Means of the value of a step and of its square; and, over pairs of neighbouring steps of a block,
        of the first value, the second value and their product."""

    def add_block(self, values: Floats, step_ms: float) -> Floats | None:
        """Add a block [P, BLOCK_STEPS, R]; return z [P, R] of the level since the start if a test is due, else None."""
        before, after = values[:, :-1], values[:, 1:]
        moments = np.stack([each.mean(axis=1) for each in (values, values**2, before, after, before * after)])
        self._steps += BLOCK_STEPS
        self._moments += BLOCK_STEPS / self._steps * (moments - self._moments)
        if self._batch_blocks:
            self._partial += moments[0]
            self._partial_blocks += 1
            if self._partial_blocks < self._batch_blocks:
                return None
            self._means[self._batches] = self._partial / self._batch_blocks
            self._batches += 1
            self._partial[:], self._partial_blocks = 0.0, 0
        else:
            self._means[self._batches : self._batches + BLOCK_STEPS] = values.swapaxes(0, 1)
            self._batches += BLOCK_STEPS
        z = self._test(step_ms) if self._steps >= self._next_test else None
        if self._batches == MOST_BATCHES:
            joined = 2 if self._batch_blocks else BLOCK_STEPS
            self._batches //= joined
            self._means[: self._batches] = self._means.reshape(self._batches, joined, *self._means.shape[1:]).mean(
                axis=1
            )
            self._batch_blocks = max(2 * self._batch_blocks, 1)
        return z

    def _test(self, step_ms: float) -> Floats:
        self._next_test = MORE * self._steps
        means, ranks = self._means[: self._batches], self._means.shape[2]
        level, pairs = means.mean(axis=0), self._batches // 2
        double = ((means[0 : 2 * pairs : 2] + means[1 : 2 * pairs : 2]) / 2).var(axis=0, ddof=1) * 2
        batched = np.maximum(double, 2 * double - means.var(axis=0, ddof=1)) / self._batches
        mean, square, before, after, product = self._moments
        variance, covariance = np.maximum((square - mean**2, product - before * after), 0.0)
        alike = mean_correlation(np.arange(self._steps, 0, -1), MEMORY)
        others = max(ranks - 1, 1)
        unseen = alike * UNSEEN_WANDER_ERRORS / sqrt(self._steps * others)
        # Correct for short runs: slowly varying noise deviates less from its own mean than from its true level.
        covariance *= alike / (1 - alike)
        of_batches, wandering = _of_others(batched), _of_others(covariance)
        spread = of_batches + wandering + unseen * _of_others(variance) + (MIN_SPREAD_SHARE * step_ms) ** 2
        seen = max(ranks - 2, min(self._steps / WANDERS_STEPS, MOST_SEEN), 1)
        uncertain = of_batches**2 / (NU_SHARE * (pairs - 1) * others) + wandering**2 / seen
        freedom = spread**2 / np.maximum(uncertain, 1e-3 * spread**2)
        spread = np.maximum(spread, batched + covariance)
        if ranks > FEW_RANKS:
            level -= row_medians(level)[:, None]
        beyond = np.sign(level) * np.maximum(np.abs(level) - MIN_CHANGE_SHARE * step_ms, 0.0)
        return z_of_t(beyond / np.sqrt(spread), freedom)


def _of_others(variances: Floats) -> Floats:
    """Return the mean variance over all ranks except the noisiest, corrected for leaving it out: [P, R] -> [P, 1]."""
    ranks = variances.shape[1]
    if ranks <= FEW_RANKS:
        mean: Floats = variances.mean(axis=1, keepdims=True)
        return mean
    without: Floats = (variances.sum(axis=1) - variances.max(axis=1)) / (ranks - 1) * (1 + 1.5 / ranks)
    return without[:, None]
