"""Detection of noise that is too large to decide whether a slowdown begins or continues."""

from __future__ import annotations

from math import exp, log

import numpy as np

from ddpmon.analysis.slowness.level_since_start import UNSEEN_WANDER_ERRORS
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import CERTAIN_Z, Slowdown
from ddpmon.analysis.slowness.spread import mean_correlation
from ddpmon.analysis.slowness.who import FEWEST_ROWS
from ddpmon.analysis.statistics.arrays import SIGMAS_PER_MAD, Floats, series_median
from ddpmon.analysis.threshold import Threshold

NOISIER = Threshold(
    2.0,
    of="present spread of the noise, as a multiple of its earlier spread, above which the noise may hide a slowdown",
    why="As long as the noise does not grow, ddpmon can still see a slowdown that continues.",
)


def hidden_since(
    rows: RunRows, series: tuple[Floats, Floats, float], begin: int, before: Slowdown | None
) -> int | None:
    """Return the first row at which noise is too large to tell whether the slowdown continues; None if there is none.

    Args:
        rows: The run.
        series: `Excess.series` of the slow ranks.
        begin: First row of the slowdown, which still lasts as far as is known.
        before: Its description at the last judgement.

    """
    values, noise, memory = series
    if len(rows) - begin < 4 * FEWEST_ROWS:
        return None
    change = rows.index(before.hidden_since) if before and before.hidden_since is not None else 0
    if before and change > begin:
        level = before.excess_ms
    else:
        variance = np.square(noise[begin:])
        change = _variance_change(variance) + begin
        level = series_median(values[begin:change])
        ratio = variance[change - begin :].mean() / variance[: change - begin].mean()
        if not NOISIER.is_reached(float(ratio) ** 0.5):
            return None
    # Use a median, because large noise is skewed. The standard error of a median is 1.25 times that of a mean.
    lately, loud = series_median(values[change:]), float(np.sqrt(np.square(noise[change:]).mean()))
    reach = 2 * 1.25 * loud * (memory / float(rows.steps[change:].sum())) ** 0.5
    return change if lately - reach <= 0 and lately + reach >= level else None


def begins_as_noise(rows: RunRows, values: Floats, begin: int, end: int) -> bool:
    """Return whether ranks that seem slow from a row on may only be noisier than before.

    Noise makes the excess vary; a slowdown adds the same to each step. The size of the noise is measured as the scatter
    of the values around their trend, and its duration by the correlation of neighbouring values. The noise has grown if
    it was smaller in at least a quarter of the earlier rows, because it may have grown before the ranks seem slow.

    Args:
        rows: The run.
        values: [N] The excess.
        begin: First row of the slowdown.
        end: Row after its last one.

    """
    values, begin = values[len(rows.blocks) : end], begin - len(rows.blocks)
    count, size = len(values) - begin, min(len(values) - begin, begin)
    if size < FEWEST_ROWS:
        return False
    usual, now = (
        [_around_trend(values[last - size : last])[0] for last in range(end, first + size - 1, -size)]
        for first, end in ((0, begin), (begin, len(values)))
    )
    if not NOISIER.is_reached(
        series_median(np.array(now)) / max(float(np.quantile(usual, 0.25, method="lower")), 1e-9)
    ):
        return False
    around = _around_trend(values[begin:])[1]
    level = float(around.mean())
    rest = around - level
    square = float(rest @ rest)
    alike = float(rest[1:] @ rest[:-1]) / max(square, 1e-12)
    # Correct the bias of a correlation of few values around a fitted line, and take an upper bound.
    alike += (2 + 4 * max(alike, 0.0)) / count + UNSEEN_WANDER_ERRORS * (1 / count) ** 0.5
    memory = -1 / log(min(max(alike, 1e-9), exp(-1 / count)))
    of_mean, of_line = (
        mean_correlation(np.correlate(weights, weights, "full")[count - 1 :], memory)
        for weights in (np.ones(count), _places(count))
    )
    # Correct for few values: they vary less around their own trend than around 0.
    return bool(level < CERTAIN_Z * (square / count * of_mean / (1 - of_mean - of_line)) ** 0.5)


def _around_trend(values: Floats) -> tuple[float, Floats]:
    """Return the robust standard deviation of values around a line, and the values without the slope and outliers."""
    place = _places(len(values))
    level = values - place * float(place @ values) / float(place @ place)
    middle = series_median(level)
    spread = SIGMAS_PER_MAD * series_median(np.abs(level - middle))
    return spread, np.clip(level, middle - 4 * spread, middle + 4 * spread)


def _places(count: int) -> Floats:
    """Return equally spaced numbers around 0, [count]."""
    places: Floats = np.arange(count, dtype=np.float64) - (count - 1) / 2
    return places


def _variance_change(variance: Floats) -> int:
    """Return the most likely index at which a variance changes once."""
    count = np.arange(1, len(variance))
    sums = np.cumsum(variance)
    first, rest = sums[:-1] / count, (sums[-1] - sums[:-1]) / (len(variance) - count)
    return int((count * np.log(first) + (len(variance) - count) * np.log(np.maximum(rest, 1e-30))).argmin()) + 1
