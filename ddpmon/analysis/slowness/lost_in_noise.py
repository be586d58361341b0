"""Detect noise that is too large to decide whether a slowdown continues."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.slowness.who import FEWEST_ROWS
from ddpmon.analysis.statistics.arrays import Floats, median
from ddpmon.analysis.threshold import Threshold

NOISIER = Threshold(
    2.0,
    of="present spread of the noise, as a multiple of its earlier spread, from which on it may hide a slowdown",
    why="While noise stays as it was at detection, a slowdown that continues remains detectable.",
)


def hidden_since(
    rows: RunRows, series: tuple[Floats, Floats, float], begin: int, before: Slowdown | None
) -> int | None:
    """Return the row from which noise is so large that the level may be the peers' as well as the full excess.

    Args:
        rows: The run.
        series: `Excess.series` of the slow ranks.
        begin: First row of the slowdown, which has not ended.
        before: Its description of last time.

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
        level = median(values[begin:change])
        ratio = variance[change - begin :].mean() / variance[: change - begin].mean()
        if not NOISIER.reached(float(ratio) ** 0.5):
            return None
    # A median, since noise of this size is skewed, and its standard error: 1.25 times that of a mean.
    lately, loud = median(values[change:]), float(np.sqrt(np.square(noise[change:]).mean()))
    reach = 2 * 1.25 * loud * (memory / float(rows.steps[change:].sum())) ** 0.5
    return change if lately - reach <= 0 and lately + reach >= level else None


def _variance_change(variance: Floats) -> int:
    """Return the most likely index at which a variance changes for good."""
    count = np.arange(1, len(variance))
    sums = np.cumsum(variance)
    first, rest = sums[:-1] / count, (sums[-1] - sums[:-1]) / (len(variance) - count)
    return int((count * np.log(first) + (len(variance) - count) * np.log(np.maximum(rest, 1e-30))).argmin()) + 1
