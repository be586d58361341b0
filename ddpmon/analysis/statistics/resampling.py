"""Estimation of the uncertainty of a median or a mean of step times by the circular block bootstrap.

A long step is often followed by other long steps (a busy neighbour, a cold cache), so resampling single steps would
understate the uncertainty. Blocks of consecutive steps are drawn instead, as long as their correlation lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, log10, sqrt

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats

RESAMPLES = 1000
"""Number of resampled runs: 25 of them lie beyond each end of the interval."""
SEED = 20261120
"""Seed of the random numbers. Any number will do, but it is fixed so that the same runs give the same interval."""
INTERVAL_SHARE = 0.95
"""Share of the resampled ratios that the interval contains: the usual 95%."""
_AT_ONCE = 2_000_000
"""Number of values that are drawn at a time, to limit memory to 16 MB."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of one run's quantity to another's, with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Return whether the interval excludes 1, so that chance alone does not explain the ratio."""
        return self.low > 1 or self.high < 1

    def times(self, factor: float) -> Ratio:
        return Ratio(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Resampled:
    """A run's median and mean, and the medians and means of its resampled runs."""

    median: float
    mean: float
    medians: Floats
    """[RESAMPLES] Medians of the resampled runs, sorted."""
    means: Floats


def resampled(values: Floats) -> Resampled:
    """Resample a run by drawing blocks of its steps.

    Args:
        values: [S] Positive values in the order of the steps.

    """
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
    """Return the factor by which to widen the interval if it is drawn from few blocks.

    The factor is Student's t quantile over the normal quantile, times the correction of the variance from n to n - 1.
    """
    free = max(2.0, blocks - 1)
    z = 1.96
    student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return student / z * sqrt((free + 1) / free)


def resampled_ratio(over: float, overs: Floats, under: float, unders: Floats) -> Ratio:
    """Return over / under, with the interval of the ratios of all pairs of resampled values.

    Swapping the arguments gives the inverse ratio and interval.

    Args:
        over: The numerator.
        overs: Resampled values of the numerator.
        under: The denominator.
        unders: Resampled values of the denominator.

    """
    logs = np.log(overs)[:, None] - np.log(unders)[None, :]
    tail = (1 - INTERVAL_SHARE) / 2
    low, high = np.quantile(logs, [tail, 1 - tail])
    return Ratio(over / under, exp(low), exp(high))


def block_length(values: Floats) -> int:
    """Return the number of consecutive steps to draw together; at most a third of all.

    This is the automatic choice of Politis and White (2004; corrected by Patton, Politis and White, 2009) for circular
    blocks: autocovariances up to the lag at which they are insignificant, weighted by a flat-top kernel. With few
    values, nearly all autocovariances are insignificant. The length is therefore at least that of their formula for
    a Markov chain with the same correlation of direct neighbours (corrected for its bias with few values), and at least
    the cube root of the number of values.
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
    """Return the block length of Politis and White for the autocorrelations [S] of S values."""
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
