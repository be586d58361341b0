"""Compare ranks with their peers, and smooth series of steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Floats, Ints, Number, middles
from ddpmon.analysis.threshold import Threshold

EXPLAINS = Threshold(
    0.5,
    of="share of a rank's excess over its peers that a cause, or time with a name, accounts for",
    why="What has half of it outweighs all that is left together.",
    keeps=0.5,
)
SOME = 64
"""Peers enough to estimate what is usual: their median strays by 16% of what one does (1.25 / sqrt(64)).

`some_of` takes fewer than twice as many."""
AT_ONCE = 1 << 15
"""Values that a running median is worked out of at once: what lies between them and it then stays in the cache."""
SMOOTHED = 4
"""Steps by which a running median of five is shorter than what it is taken of."""


def over_peers(values: Floats, around: tuple[Floats, Floats, Floats] | None = None) -> Floats:
    """Each value less the median of the others in its row: [S, R] -> [S, R]. around: its `middles`, if computed."""
    if values.shape[1] < 2:
        return np.zeros_like(values)
    low, middle, high = (each[:, None] for each in around or middles(values))
    if values.shape[1] % 2 == 0:
        peers: Floats = np.where(values <= low, high, low)
    else:
        peers = np.where(values < middle, middle + high, np.where(values > middle, low + middle, low + high)) / 2
    return np.subtract(values, peers, out=peers)


def share_over_peers(values: Floats, over: Floats | None = None) -> Floats:
    """Return each value over the median of the others in its row, as a share of that median: [S, R] -> [S, R].

    over: the values' `over_peers`, if computed. 0 where the others' median is.
    """
    if over is None:
        over = over_peers(values)
    peers = values - over
    return np.divide(over, peers, out=np.zeros_like(over), where=peers > 0)


def some_of(peers: Ints) -> Ints:
    """As many of these columns as are enough to estimate what is usual, evenly from all of them."""
    return peers[:: max(1, len(peers) // SOME)]


def steady(series: NDArray[Number]) -> NDArray[Number]:
    """Return the running median of five along the first axis, SMOOTHED shorter (Tukey, 1977).

    Single long steps are taken out (a collection of garbage, a hiccup of the scheduler), changes of level stay sharp.
    """
    if len(series) <= SMOOTHED:
        return series[:0]
    middle = np.empty_like(series[SMOOTHED:])
    rows = max(SMOOTHED, AT_ONCE // max(1, series[:1].size))
    for begin in range(0, len(middle), rows):
        out = middle[begin : begin + rows]
        a, b, c, d, e = (series[begin + i : begin + i + len(out)] for i in range(SMOOTHED + 1))
        low = np.maximum(np.minimum(a, b), np.minimum(c, d))
        high = np.minimum(np.maximum(a, b), np.maximum(c, d))
        np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e), out=out)
    return middle
