"""The noise of single steps, and the variance of contrasts that follows from it."""

from __future__ import annotations

from functools import cache

import numpy as np

from ddpmon.analysis.slowness.matched_filters import weights_of_contrasts
from ddpmon.analysis.slowness.series import BLOCK_STEPS
from ddpmon.analysis.slowness.spread import (
    EARLY,
    FEW_RANKS,
    FORGET,
    FORGET_SOON,
    MEMORY,
    mean_of_others,
    uncertain,
)
from ddpmon.analysis.statistics.arrays import Bools, Floats
from ddpmon.analysis.statistics.excess import sample_of

UNSEEN_STEP_ERRORS = 2.0
"""Standard errors that are added to the estimate of wandering (slowly varying) noise."""
NOW_RATE = 0.5
"""Weight of the latest block in the current noise. With this large weight, noise that begins in all ranks counts at
once; one rank that becomes slow adds only one large difference between neighbouring steps."""
DELAY, DELAY_OF_FEW = 10 // BLOCK_STEPS, 40 // BLOCK_STEPS
"""Number of blocks before a block counts in the estimate of wandering noise, so that a rank that becomes slow has a
signal before its slowness counts as noise. With few ranks, detection and thus the delay take longer."""
MEMORIES = (2, 5, 10, 20, 33, 66, 100, 300)
"""Correlation times of wandering noise that are tested: numbers of steps in which the correlation falls to 1/e."""


@cache
def noise_of_contrasts() -> tuple[Floats, Floats]:
    """Return the variance of each contrast for white noise of variance 1, and the maximum for wandering noise, [K]
    each.

    Wandering noise is modelled as a sum of autoregressions, measured by the covariance of different steps of a block.
    The variance that it adds to a contrast, beyond that of white noise, is the maximum over MEMORIES.
    """
    weights = weights_of_contrasts()
    frequency = np.linspace(0, np.pi, weights.shape[1] + 1)
    power = np.abs(np.fft.rfft(weights, 2 * weights.shape[1], axis=1)) ** 2
    lags = np.arange(1, BLOCK_STEPS)
    pairs = (BLOCK_STEPS - lags) / (BLOCK_STEPS - lags).sum()
    white, most = power.mean(axis=1), np.zeros(len(weights))
    for memory in MEMORIES:
        keep = np.exp(-1 / memory)
        spectrum = (1 - keep**2) / (1 - 2 * keep * np.cos(frequency) + keep**2)
        added = (power * spectrum).mean(axis=1) - (1 - keep) * white
        most = np.maximum(most, added / (pairs * keep**lags).sum())
    return white, most


class StepNoise:
    """Splits the noise of steps into a white part and a wandering part.

    The variance of white noise is half the mean square of differences of neighbouring steps; a few dozen steps suffice.
    The variance of wandering noise is the mean product of different steps of a block, without the first MEMORY steps,
    because the baseline starts at the noise of that time. A lasting slowdown hardly affects these estimates: it changes
    a single difference. It also changes the product of the slow rank, but a rank is tested with the products of other
    ranks.
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._sample = sample_of(ranks)
        self._each = self._sample.step == 1 and ranks > FEW_RANKS
        self._delay = DELAY if ranks > FEW_RANKS else DELAY_OF_FEW
        self._white = np.zeros((2, series, ranks))
        """[2, P, R] Variance of white noise: a mean over many steps, and one over the last 500."""
        self._now = np.zeros(series)
        """[P] The variance of white noise of all ranks in the latest blocks."""
        self._wandering = np.zeros((2, series, ranks if self._each else 1))
        """[2, P, R] or [2, P, 1] Mean, over blocks, of the other ranks' product of different steps, and of its
        square."""
        self._waiting: list[Floats] = []
        self._blocks = self._learned = 0

    def add_block(self, around: Floats) -> None:
        """Learn white noise from the values of a block minus the baseline: [P, BLOCK_STEPS, R]."""
        white = np.square(np.diff(around, axis=1)).mean(axis=1) / 2
        self._blocks += 1
        for memory, forget in enumerate((FORGET, FORGET_SOON)):
            self._white[memory] += min(max(EARLY / (self._blocks + 1), forget), 1.0) * (white - self._white[memory])
        self._now += NOW_RATE * (white[:, self._sample].mean(axis=1) - self._now)

    def learn_wandering(self, around: Floats, slow: Bools) -> None:
        """Learn wandering noise.

        Args:
            around: [P, BLOCK_STEPS, R] Values minus the baseline.
            slow: [P, R] True for ranks with a signal.

        """
        product = (np.square(around.sum(axis=1)) - np.square(around).sum(axis=1)) / (BLOCK_STEPS * (BLOCK_STEPS - 1))
        product = np.where(slow, np.minimum(product, self._wandering[0]), product)
        self._waiting.append(mean_of_others(product[:, self._sample], each=self._each))
        if len(self._waiting) > self._delay:
            product = self._waiting.pop(0)
            if self._blocks > self._delay + MEMORY // BLOCK_STEPS:
                self._learned += 1
                latest = np.stack((product, np.square(product)))
                self._wandering += max(1 / self._learned, FORGET) * (latest - self._wandering)

    def variance(self, most: Floats, tails: Floats) -> tuple[Floats, Floats]:
        """Return the variance of contrasts: that of white noise plus that of wandering noise, which has two upper
        bounds.

        The first bound is the measured variance minus that of white noise. The second follows from the correlation of
        the other ranks' steps plus UNSEEN_STEP_ERRORS standard errors. A rank with more white noise than others gets a
        proportionally larger variance.

        Args:
            most: [P, K, R] or [P, K, 1] The largest variance of contrasts that is consistent with their measurement.
            tails: [P, K] The factor by which heavy tails enlarge a variance.

        Returns:
            [P, K, R] or [P, K, 1] the variance for a typical rank; [P, R] the variance of each rank as a multiple of
            it.

        """
        count = most.shape[1]
        white, wandering = (each[:count, None] for each in noise_of_contrasts())
        usual = self._white[0][:, self._sample].mean(axis=1)[:, None]
        soon = self._white[1][:, self._sample].mean(axis=1)[:, None]
        now = np.maximum(np.maximum(usual, soon), self._now[:, None]) * tails
        rest = np.minimum(most - usual[..., None] * white, self._most_wandering(usual)[:, None] * wandering)
        others = mean_of_others(self._white[1][:, self._sample], each=self._each)
        noisier = np.clip(self._white[1] / np.maximum(others, 1e-30), 1.0, 25.0)
        return now[..., None] * white + np.maximum(rest, 0.0), noisier

    def _most_wandering(self, white: Floats) -> Floats:
        """Return the largest variance of wandering noise, given that of white noise: [P, 1] -> [P, R].

        The standard error is computed over blocks, not over ranks, because the noise of ranks may be correlated.
        """
        mean, square = self._wandering
        if self._learned < MEMORY // BLOCK_STEPS:
            return np.full_like(mean, np.inf)
        freedom = np.array(min(self._learned, 2 / FORGET) - 1)
        error = np.maximum(square - np.square(mean), 0.0) / freedom * uncertain(freedom, np.array(UNSEEN_STEP_ERRORS))
        error = UNSEEN_STEP_ERRORS * np.sqrt(error)
        mean = np.maximum(mean, 0.0)
        correlation = np.minimum((mean + error) / np.maximum(white + mean, 1e-30), 0.999)
        most: Floats = white * correlation / (1 - correlation)
        return most
