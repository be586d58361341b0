"""Comparison of ranks with their peers, and smoothing of series of steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Floats, Ints, Number, middle_values
from ddpmon.analysis.threshold import Threshold

EXPLAINS = Threshold(
    0.5,
    of="share of a rank's excess over its peers that one cause must explain before ddpmon names it; a phase that the "
    "script named counts as a cause",
    why="If a cause explains half of the excess, it is larger than all other causes together.",
    stay=0.25,
)
MOSTLY = Threshold(
    0.8,
    of="share of a rank's excess in one phase, of unexplained pauses on one rank, or of waits for data of one "
    "DataLoader worker, above which ddpmon names only this phase, rank or worker",
    why="A judgement call: at most a fifth is elsewhere. A cause that lengthens all phases, such as low clocks, puts "
    "about half of the excess into one phase; two ranks that pause in turn have half of the pauses each; and each of "
    "four equally fast workers causes a quarter of the waits.",
)
SOME = 64
"""Minimum size of a sample of ranks from which the usual value is estimated. The standard error of a median of 64
ranks is 16% of one rank's deviation (1.25 / sqrt(64)), and the spread of 64 ranks is known to 9%. A sample has fewer
than 128 ranks."""
SMOOTHED = 4
"""Number of values by which a running median of five is shorter than its input."""


def over_peers(values: Floats) -> Floats:
    """Return each value minus the median of the other values in its row: [S, R] -> [S, R]."""
    if values.shape[1] < 2:
        return np.zeros_like(values)
    low, middle, high = (each[:, None] for each in middle_values(values))
    if values.shape[1] % 2 == 0:
        peers: Floats = np.where(values <= low, high, low)
    else:
        peers = np.where(values < middle, middle + high, np.where(values > middle, low + middle, low + high)) / 2
    return np.subtract(values, peers, out=peers)


def share_over_peers(values: Floats) -> Floats:
    """Return each value's excess over the median of the others, as a fraction (0 if the median is 0): [R] -> [R]."""
    over = over_peers(values[None])[0]
    peers = values - over
    share: Floats = np.divide(over, peers, out=np.zeros_like(over), where=peers > 0)
    return share


def sample_of(columns: int) -> slice:
    """Return a slice that selects evenly spaced columns, as many as suffice to estimate the usual value (see SOME)."""
    return slice(None, None, max(1, columns // SOME))


def some_of(peers: Ints) -> Ints:
    """Return evenly spaced elements of `peers`, as many as suffice to estimate the usual value (see SOME)."""
    return peers[sample_of(len(peers))]


def running_median(series: NDArray[Number]) -> NDArray[Number]:
    """Return the running median of five along the first axis, SMOOTHED shorter (Tukey, 1977).

    A running median removes single long steps (a garbage collection, a hiccup of the scheduler), and keeps changes of
    level sharp.
    """
    if len(series) <= SMOOTHED:
        return series[:0]
    a, b, c, d, e = (series[i : len(series) - SMOOTHED + i] for i in range(SMOOTHED + 1))
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))
    middle: NDArray[Number] = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
    return middle
