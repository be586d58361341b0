"""By how much a rank's own time exceeds its peers', and how far chance alone carries a mean of it.

A median of five steps goes first: single long steps (a collection of garbage, a hiccup of the scheduler, a
checkpoint) are taken out and steps in level stay sharp (Tukey's running median).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Floats, Ints, Number, median, middles
from ddpmon.analysis.statistics.wandering import Wandering, wandering
from ddpmon.analysis.threshold import Threshold

EXPLAINS = Threshold(
    0.5,
    of="share of a rank's excess over its peers that a cause, or time with a name, accounts for",
    why="What has half of it outweighs all that is left together.",
    keeps=0.5,
)
FALSE_ALARMS = Threshold(
    2e-5,
    of="probability that chance makes a rank late, over all ranks and stretches looked at together",
    why="Looks half a second apart are nearly the same, and chance counts at its worst; benchmarks/calibration.py has"
    " the false alarms that are left.",
    below=True,
)
SOME = 64
"""Peers enough to estimate what is usual: their median strays by 16% of what one does (1.25 / sqrt(64)).

`some_of` takes fewer than twice as many."""
AT_ONCE = 1 << 15
"""Values that a running median is worked out of at once: what lies between them and it then stays in the cache."""
SMOOTHED = 4
"""Steps by which a running median of five is shorter than what it is taken of."""
TELLING = 16
"""Ranks enough to estimate how much the noise of all varies, in hundreds of steps."""
ROUGHER = 1.5
"""Times what is usual that a median of some two dozen squares strays to by chance."""
UNSEEN = 0.015
"""Share of the own time by which it may wander although a short window does not show it."""
UNSEEN_STEPS = 40
"""Steps for which it may wander so: a mean over more has less of it."""


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


def restless(excess: Floats) -> float:
    """How much neighbouring steps differ as a rule, of a series [S] or of ranks [S, R]: a variance, up to a factor."""
    some = excess[:, :: max(1, excess.shape[1] // TELLING)] if excess.ndim > 1 else excess
    return max(median(np.square(np.diff(some, axis=0)).ravel()), 1e-12)


def noisier(excess: Floats, usual: float) -> float:
    """How many times the usual variance a series has, beyond chance: a delay leaves its noise as it was."""
    return max(1.0, restless(excess) / usual / ROUGHER)


def some_of(peers: Ints) -> Ints:
    """As many of these columns as are enough to estimate what is usual, evenly from all of them."""
    return peers[:: max(1, len(peers) // SOME)]


def steady(series: NDArray[Number]) -> NDArray[Number]:
    """Running median of five along the first axis; SMOOTHED shorter."""
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


@cache
def deviations(tries: int) -> float:
    """Standard deviations that are exceeded by chance in FALSE_ALARMS of all cases with so many tries."""
    return NormalDist().inv_cdf(1 - FALSE_ALARMS.enter / tries)


@dataclass(frozen=True)
class Chance:
    """How far the mean excess over n neighbouring steps strays by chance, for each rank.

    By noise with a memory of its own, as `wandering` fits it to the window; a short window cannot show how long its
    noise lasts, and counts as what fits it worst. A rank's variance counts as its own or, if larger, the mean of all
    ranks.
    """

    noise: Wandering
    unseen_ms: float
    """Standard deviation of wandering that a short window may hide."""
    parts: Chance | None = None
    """Of one of those that each of these is a mean of; None: they are no means."""
    share: Floats = field(default_factory=lambda: np.ones(1))
    """[R] Times what such a part strays that a mean of them does at least."""

    def bound_ms(self, steps: int, deviations: float) -> Floats:
        """[R] The same of one length."""
        bound: Floats = self.bounds_ms([steps], deviations)[0]
        return bound

    def bounds_ms(self, lengths: Sequence[int], deviations: float) -> Floats:
        """[lengths, R] What means over so many neighbouring steps exceed as rarely as a normal value its `deviations`.

        With the first term that takes a normal quantile to Student's (Abramowitz and Stegun, 26.7.5): few blocks
        tell their variance badly.
        """
        student = deviations * (1 + (deviations**2 + 1) / (4 * self.noise.freedom))
        steps = np.array(lengths)[:, None]
        unseen = self.unseen_ms**2 * np.minimum(1.0, UNSEEN_STEPS / steps)
        variance = np.maximum(self.noise.relative, 1.0) * self.noise.variances(steps)
        bound: Floats = np.sqrt(student**2 * variance + deviations**2 * unseen)
        if self.parts is None:
            return bound
        of_parts: Floats = self.share * self.parts.bounds_ms(lengths, deviations)
        return np.maximum(bound, of_parts)

    def of_a_rank(self, column: int | None = None, times: float = 1.0) -> Chance:
        """The same for one rank alone; None: that is as noisy as the mean of all.

        times: the variance of that mean that it has, if that is more.
        """
        relative = 1.0 if column is None else float(self.noise.relative[column])
        share = self.share if column is None or len(self.share) == 1 else self.share[[column]]
        noise = replace(self.noise, relative=np.array([max(relative, times)]))
        return replace(self, noise=noise, share=share if self.parts else np.ones(1))

    def of_means(self, parts: Chance, share: Floats) -> Chance:
        """The same of what are means of other series: few of them tell less of noise than what they are made of.

        parts: the noise of those. share: [R] times that of one that is left in each mean.
        """
        return replace(self, parts=parts.of_a_rank(), share=share)

    @property
    def tail(self) -> float:
        """How many times as far as normal values rare means of some steps stray."""
        return float(self.noise.tails[0])

    def per_step(self, column: int) -> float:
        """Variance of a long sum of the column, over its steps: that of a step, and more where noise lasts."""
        return float(max(self.noise.relative[column], 1.0) * self.noise.per_step)


def chance(total: Floats, typical_ms: float) -> Chance:
    """The noise of excesses, S at least 6. total: [S + 1, R] their `running_total`; typical_ms: a typical own time."""
    return Chance(wandering(total), UNSEEN * typical_ms)
