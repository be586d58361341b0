"""Estimate of the first step of a change of level, with its 95% interval, and whether the rise was sudden or gradual.

Noise may be correlated over many steps, and a window is too short to estimate the correlation. A grid of whitening
filters is therefore used: the steady state of Kalman filters for white noise on top of an autoregression. Each filter
turns the series into innovations. At each index, a level shift and a ramp are fitted to the innovations by least
squares, and all fits are weighted by their likelihood (Bayesian model averaging). With correlated noise, the onset of a
gradual change becomes uncertain, and the onset of a sudden one stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ddpmon.analysis.slowness.matched_filters import FILTERS, Whitening
from ddpmon.analysis.statistics.arrays import Floats, Ints, series_median
from ddpmon.analysis.statistics.excess import SMOOTHED, running_median
from ddpmon.analysis.threshold import Threshold

RAMP = Threshold(
    5.0,
    of="log Bayes factor of a gradual rise against a sudden rise",
    why='A value of 5 is "very strong" evidence (Kass and Raftery, 1995). We require this because most changes are '
    "sudden.",
)
SUDDEN_VARIANCE = Threshold(
    0.5,
    of="variance that a sudden rise at a possible first step explains, as a share of the variance that a sudden "
    "rise at the best-fitting step explains",
    why="Filters for slowly changing noise mistake a short spike for a lasting rise. After a spike, the level "
    "falls again, so a lasting rise at the spike explains less of the variance.",
)
OUTLYING = 4.0
"""Maximum distance of a value from the running median of five, in robust standard deviations. Values beyond are
clipped."""
COVERS = 0.95
"""Probability that the interval contains the onset."""
NEGLIGIBLE_REMAINDER = 1e-18
"""Weight below which a value no longer affects a sum."""


@dataclass(frozen=True)
class Onset:
    """A change of a series' level. All indices refer to the values of the series."""

    index: int
    """Index of the most likely first value after the change; 0: the level never changed."""
    within: tuple[int, int]
    """95% interval of `index`."""
    evidence: float
    """Log Bayes factor against no change."""
    is_ramp: bool

    def in_steps(self, first: Floats | Ints) -> tuple[int, tuple[int, int]]:
        """Return `index` and `within` as numbers of steps, given the first step of each value, [N]."""
        low, high = self.within
        return int(first[self.index]), (int(first[low]), int(first[high]))


def find_onset(series: Floats, *, may_be_constant: bool) -> Onset:
    """Find where a series rises, under the assumption that it rises once.

    Args:
        series: [N] Excess, with one rise in it; N is at least 3.
        may_be_constant: True if the series may be high from its first value on; the result then has index 0.

    """
    values, count = _without_outliers(series), len(series)
    logs = np.full((2, len(FILTERS), count), -np.inf)
    constant = np.empty(len(FILTERS))
    for row, each in enumerate(FILTERS):
        left, step, ramp = _explained(values, each)
        floor = 1e-9 * float(values @ values) + 1e-18
        constant[row] = -(count - 1) / 2 * np.log(max(left, floor))
        for kind, explained in enumerate((step, ramp)):
            logs[kind, row, 1:] = -(count - 2) / 2 * np.log(np.maximum(left - explained[1:], floor))
            logs[kind, row, 1:][explained[1:] <= 0] = -np.inf
        if row == 0:
            lasting = step >= SUDDEN_VARIANCE.enter * step[1:].max()
    logs[0, :, ~lasting] = -np.inf
    # Penalise the additional parameter, the size of the change (BIC). A priori, all indices are equally likely.
    logs -= 0.5 * np.log(count) + np.log(count - 1)
    logs[1, :, -SMOOTHED:] = -np.inf  # Ramps over the last few values are excluded: they look like level shifts.
    totals = np.logaddexp.reduce(logs.reshape(2, -1), axis=1)
    never = float(np.logaddexp.reduce(constant))
    if not np.isfinite(totals.max()):  # The series rises nowhere.
        return Onset(0, (0, 0), -np.inf, is_ramp=False)
    is_ramp = bool(totals[1] - totals[0] >= RAMP.enter)
    of_index = np.logaddexp.reduce(logs[int(is_ramp)], axis=0)
    if may_be_constant:
        of_index[0] = never
    chances = np.exp(of_index - of_index.max())
    below = np.cumsum(chances) / chances.sum()
    edges = np.searchsorted(below, [(1 - COVERS) / 2, (1 + COVERS) / 2])
    best = int(chances.argmax())
    within = min(best, int(edges[0])), max(best, min(int(edges[1]), count - 1))
    return Onset(best, within, float(totals.max()) - never, is_ramp)


def _without_outliers(series: Floats) -> Floats:
    """Clip single values that are far from the running median of five. Level shifts stay sharp."""
    if len(series) <= SMOOTHED:
        return series
    half = SMOOTHED // 2
    smooth = running_median(series)
    middle = np.concatenate([np.full(half, smooth[0]), smooth, np.full(half, smooth[-1])])
    reach = OUTLYING * 1.48 * series_median(np.abs(series - middle)) + 1e-9
    clipped: Floats = np.clip(series, middle - reach, middle + reach)
    return clipped


def _explained(values: Floats, noise: Whitening) -> tuple[float, Floats, Floats]:
    """Fit a constant level, and in addition a rise at each index: either a level shift or a ramp.

    Returns:
        The residual sum of squares of the constant, and its reduction by a level shift and by a ramp at each index, [N]
        each.

    """
    innovations = _decaying(np.concatenate([values[:1], values[1:] - noise.keep * values[:-1]]), noise.decay)
    shape, of_step, of_ramp = _responses(len(values), noise)
    rest = innovations - float(shape @ innovations) / float(shape @ shape) * shape
    along = _along_steps(rest, noise)
    step = np.square(np.maximum(along, 0.0)) / of_step
    ramp = np.square(np.maximum(_sums_from(along), 0.0)) / of_ramp
    return float(rest @ rest), step, ramp


@lru_cache(maxsize=256)
def _responses(count: int, noise: Whitening) -> tuple[Floats, Floats, Floats]:
    """Return the innovations of a unit level shift, and the squared sums of shifts and ramps after fitting a constant,
    [N].
    """
    shape = noise.response(count)
    level, with_level = float(shape @ shape), _along_steps(shape, noise)
    of_step = np.cumsum(np.square(shape))[::-1] - np.square(with_level) / level
    of_ramp = np.cumsum(np.square(np.cumsum(shape)))[::-1] - np.square(_sums_from(with_level)) / level
    return shape, np.maximum(of_step, 1e-9), np.maximum(of_ramp, 1e-9)


def _along_steps(values: Floats, noise: Whitening) -> Floats:
    """Return the product of the values with the innovations of a unit level shift at each index, [N]."""
    decaying = _decaying(values[::-1], noise.decay)[::-1]
    product: Floats = noise.settled * _sums_from(values) + (1 - noise.settled) * decaying
    return product


def _sums_from(values: Floats) -> Floats:
    """Return the sum of the values from each index to the end, [N]."""
    return np.cumsum(values[::-1])[::-1]


def _decaying(values: Floats, decay: float) -> Floats:
    """Return the sum of all values so far, each multiplied by `decay` per step, [N]."""
    sums, reach = values.copy(), 1
    while reach < len(sums) and decay > NEGLIGIBLE_REMAINDER:
        sums[reach:] += decay * sums[:-reach]
        reach, decay = 2 * reach, decay**2
    return sums
