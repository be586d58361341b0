"""Estimates the uncertainty of a median or a mean of step times by the circular block bootstrap.

A step that takes long is followed by others that do (a busy neighbour, a cold cache), so steps drawn one by one would
claim too much. Blocks of neighbours are drawn instead, as long as their likeness lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, log10, sqrt

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats

RESAMPLES = 1000
"""Runs that are drawn: 25 of them lie beyond each end of the interval."""
SEED = 20261120
"""Any number, always the same: the same runs give the same interval."""
CERTAINTY = 0.95
"""Share of the resampled ratios that the interval holds: the usual 95%."""
_AT_ONCE = 2_000_000
"""Values drawn at a time: 16 MB."""


@dataclass(frozen=True)
class Ratio:
    """Ratio of one run's quantity to another's, with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Return whether its interval excludes 1: chance alone does not explain it."""
        return self.low > 1 or self.high < 1

    def times(self, factor: float) -> Ratio:
        return Ratio(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Resampled:
    """A run's median and mean, and those of resampled runs."""

    median: float
    mean: float
    medians: Floats
    """[RESAMPLES] sorted"""
    means: Floats


def resampled(values: Floats) -> Resampled:
    """Draw runs like this one. values: [S] positive, in the order of their steps."""
    size = len(values)
    block = min(size, max(block_length(values), block_length(np.sign(values - np.median(values)))))
    random = np.random.default_rng(SEED)
    count = ceil(size / block)
    medians, means = [], []
    rows = max(1, _AT_ONCE // size)
    for begin in range(0, RESAMPLES, rows):
        starts = random.integers(0, size, (min(rows, RESAMPLES - begin), count, 1))
        drawn = values[((starts + np.arange(block)) % size).reshape(len(starts), -1)[:, :size]]
        medians.append(np.median(drawn, axis=1))
        means.append(drawn.mean(axis=1))
    median, mean = float(np.median(values)), float(values.mean())
    wider = _of_so_few(size / block)
    return Resampled(
        median,
        mean,
        median * np.sort(np.concatenate(medians) / median) ** wider,
        mean * np.sort(np.concatenate(means) / mean) ** wider,
    )


def _of_so_few(blocks: float) -> float:
    """Return how much wider than drawn an interval of so few blocks is: Student's t over the normal, of n - 1 against
    n.
    """
    free = max(2.0, blocks - 1)
    z = 1.96
    student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return student / z * sqrt((free + 1) / free)


def ratio(over: float, overs: Floats, under: float, unders: Floats) -> Ratio:
    """over / under, with the interval of all pairs of what both could have been: the other way round it inverts."""
    logs = np.log(overs)[:, None] - np.log(unders)[None, :]
    tail = (1 - CERTAINTY) / 2
    low, high = np.quantile(logs, [tail, 1 - tail])
    return Ratio(over / under, exp(low), exp(high))


def block_length(values: Floats) -> int:
    """Return how many neighbours to draw together; at most a third of all.

    The automatic choice of Politis and White (2004; corrected by Patton, Politis and White, 2009) for circular blocks:
    autocovariances up to the lag where they get lost in noise, weighted by a flat-top kernel. Of few values nearly
    all get lost in noise, so it is at least what their formula gives for a chain with the likeness of direct
    neighbours (corrected for the bias that few values give it), and the cube root of their number.
    """
    size = len(values)
    centred = values - values.mean()
    spectrum = np.fft.rfft(centred, 2 * size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), 2 * size)[:size] / size
    if size < 4 or covariance[0] <= 1e-12 * max(1.0, float(values.mean()) ** 2):
        return 1
    alike = covariance / covariance[0]
    near = float(np.clip(alike[1] + (1 + 3 * alike[1]) / size, 0, 0.99))
    chain = float(np.cbrt(6 * near**2 / (1 - near**2) ** 2 * size))
    return min(max(ceil(float(np.cbrt(size))), ceil(chain), _automatic(alike)), size // 3)


def _automatic(alike: Floats) -> int:
    """Politis' and White's choice. alike: [S] autocorrelations of S values."""
    size = len(alike)
    in_a_row = max(5, ceil(log10(size)))
    furthest = min(size - 1, ceil(sqrt(size)) + in_a_row)
    lost = np.abs(alike[1 : furthest + 1]) < 2 * sqrt(log10(size) / size)
    quiet = np.convolve(lost, np.ones(in_a_row), "valid") == in_a_row if furthest >= in_a_row else np.array([False])
    last = int(quiet.argmax()) if quiet.any() else int(np.flatnonzero(~lost).max(initial=0)) + 1
    reach = min(2 * max(last, 1), size - 1)
    lags = np.arange(1, reach + 1)
    weights = np.clip(2 * (1 - lags / reach), 0, 1)
    slope = 2 * float((weights * lags * alike[lags]).sum())
    level = 1 + 2 * float((weights * alike[lags]).sum())
    return ceil(float(np.cbrt(1.5 * slope**2 / level**2 * size))) if level > 0 else 1
