"""Which stretches of some series exceed what chance explains, of however many series: a scan of windows.

A value alone says little where values stray: means over 2, 4, 8, … neighbours stray less, and what lasts shows in them.
So windows of each such length are compared with how far chance alone carries a mean of so many, and a stretch is shown
at the shortest that suffices (a scan statistic: Naus, 1965; of several lengths: Glaz, Naus and Wallenstein, 2001).

How far chance carries is learnt from the series themselves:

- the standard deviation of a mean of n neighbours from differences of means that lie FORGOTTEN apart (von Neumann,
  1941; "batch means", Schmeiser, 1982), of each length by itself, so that noise which stays alike for a while counts
  for what it is; medians of their squares, so that neither a change nor a few odd series count;
- single long steps are cut before means are taken of them;
- short windows, whose means are far from normal, are also compared with the largest such means of all series: two
  quantiles of those give the distribution of extreme values (Fisher and Tippett, 1928), so that stalls which all have
  are nobody's, and those of a few remain;
- the more values are looked at, the further one must lie out (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Bools, median, medians, running_total
from ddpmon.analysis.statistics.excess import SMOOTHED, some_of, steady

Values = NDArray[np.float32]

FEWEST = 16
"""Values of a series that are too few to judge them."""
FORGOTTEN = 64
"""Distance from which on values count as independent."""
CHANCE = 0.005
"""Probability that chance alone marks anything in a whole map."""
NEGLIGIBLE = 0.02
"""What is less is not worth showing, however certain it is."""
CUT = 3.0
"""Deviations around a running median of five at which single values are cut."""
OFTEN = 8
"""Windows that fit into a series so often are compared with the largest of all series too."""
ROUGHER = 1.25
"""From so many times the usual roughness on, a series has noise of its own, and has to exceed that."""
_MAXIMA = 64
"""Largest means from which their distribution is learnt, if so many are to be had, each of FEWEST values at least."""
_FEWEST_MAXIMA = 8
"""Fewer of them are no basis for a distribution."""
_NORMAL = NormalDist()
_OF_SQUARES = _NORMAL.inv_cdf(0.75) ** 2
"""The median square of a normal value, over its variance."""
_SLOWER = 1.02
"""Factor of error by which the variance of means may fall more slowly with their length."""
_QUANTILES = (0.25, 0.65)
"""Quantiles of the largest means that fit the distribution: a third of the series may hold real stretches."""
_GUMBEL = tuple(-log(-log(share)) for share in _QUANTILES)
_MUCH = 8
"""Times as long, by which windows are much longer than others; a power of two."""
_FREEDOM = (4.0, 10.0)
"""Degrees of freedom that a variance has at least, of each series and of all: shorter windows are evidence of it too.
"""
_MOSTLY = 0.75
"""Share of a stretch's mean from which on some of its values are of it, however quiet the others' noise is: what is
late strays by its own."""
_NEAR = 8
"""Neighbours that count as one value in the degrees of freedom of a variance."""


@dataclass(frozen=True)
class ScanResult:
    """The result of a scan."""

    over: Values
    """[S, K] Mean of the stretch that a value stands out with; 0: it does not."""
    least: float
    """The least mean of the longest windows that stands out."""


def scan(values: Values) -> ScanResult:
    """Find which of the values stand out. values: [S, K] neighbours down, series across; as shares, around 0."""
    count, series = values.shape
    over = np.zeros_like(values)
    if count < FEWEST or not series:
        return ScanResult(over, float("inf"))
    middle = np.pad(steady(values), ((SMOOTHED // 2, SMOOTHED // 2), (0, 0)), mode="edge")
    some = some_of(np.arange(series))
    jumps = values - middle
    reach = CUT * median(np.abs(jumps[:, some]).ravel()) / _OF_SQUARES**0.5
    cut = middle + np.clip(jumps, -reach, reach)
    before = running_total(cut)
    few, far = before[:, some], -_NORMAL.inv_cdf(CHANCE / values.size)
    roughness = np.float32(ROUGHER * median(_roughness(values[:, some])))
    strays: list[float] = []
    bounds: list[float] = []
    noises: list[_Noise] = []
    length = 1
    while (apart := min(max(FORGOTTEN, length), (count - length + 1) // 2)) >= length:
        sums = values if length == 1 else before[length:] - before[:-length]
        means: Values = values[:, some] if length == 1 else (few[length:] - few[:-length]) / np.float32(length)
        noise = _Noise(means, length, apart, noises)
        noises.append(noise)
        strays.append(noise.bound(far, series))
        bound = max(strays[-1], NEGLIGIBLE)
        if length * OFTEN <= count:
            bound = max(bound, noise.largest(series))
        bounds.append(bound)
        hits = sums > (bound + noise.centre) * length
        columns = np.flatnonzero(hits.any(axis=0))
        if len(columns):
            least = bound * np.maximum(1, _roughness(values[:, columns]) / roughness)
            means = sums[:, columns] / np.float32(length) - np.float32(noise.centre)
            hits = means > least
            if length >= _MUCH:  # what shows in much shorter windows is theirs: here it counts as if it just did not
                most = bounds[-_MUCH.bit_length()] + noise.centre
                rest = running_total(np.minimum(cut[:, columns], most))
                hits &= (rest[length:] - rest[:-length]) / length - noise.centre > least
            near = strays[max(0, len(strays) - 3)]
            lit = _lit(means, hits, before[:, columns], length, noise.centre, near)
            over[:, columns] = np.maximum(over[:, columns], lit)
        length *= 2
    return ScanResult(over, bounds[-1] if bounds else float("inf"))


def _roughness(values: Values) -> Values:
    """[K] How far values that lie near each other differ, which a change of level does not affect."""
    rough: Values = np.sqrt(medians(np.square(values[_NEAR:] - values[:-_NEAR]).T)) + np.float32(1e-9)
    return rough


class _Noise:
    """How far chance carries the mean of `length` neighbours, learnt from such means of some series."""

    def __init__(self, means: Values, length: int, apart: int, shorter: Sequence[_Noise]) -> None:
        """shorter: the same of windows half as long, a quarter as long, …, the shortest first."""
        self._means, self.length, self._apart = means, length, apart
        self._stride = max(1, length // 4)
        self.centre = median(means[:: self._stride].ravel())
        self.variance = self._half_square(apart)
        # A change of level in the midst of many series makes means lie further apart than chance does. But what chance
        # does never grows faster with time, and never falls more slowly with length, than it did before.
        near, nearer = max(apart // 4, self._stride), max(apart // 8, self._stride)
        if near > nearer:
            growth = self._half_square(near) / max(self._half_square(nearer), 1e-30)
            self.variance = min(self.variance, self._half_square(near) * max(1.0, growth) ** 2)
        if shorter:
            half = shorter[-1].variance
            falls = half / max(shorter[-2].variance, 1e-30) if len(shorter) > 1 else 1.0
            self.variance = min(max(self.variance, half / 2), half * min(1.0, max(0.5, falls * _SLOWER)))
        if len(means) + length <= 2 * FORGOTTEN and means.shape[1] >= _NEAR:
            # How long noise lasts does not show yet: it counts how far series lie apart, of the lower half, since
            # real stretches lie in the upper one.
            low = float(np.quantile(means, 0.25))
            self.variance = max(self.variance, (self.centre - low) ** 2 / _OF_SQUARES)

    def _half_square(self, apart: int) -> float:
        """Half the typical square of the difference of means that lie so far apart."""
        windows, apart = self._means[:: self._stride], max(1, apart // self._stride)
        squares = np.square(windows[apart:] - windows[:-apart])
        return median(medians(squares.T)) / (2 * _OF_SQUARES)

    def bound(self, far: float, series: int) -> float:
        """What a mean exceeds as rarely as a normal value exceeds `far`.

        With the first term that takes a normal quantile to Student's (Abramowitz and Stegun, 26.7.5).
        """
        # A median of squares tells a variance as well as a third of as many do together; windows that overlap, better.
        freedom = max(min(series * _FREEDOM[0], _FREEDOM[1]), series * self._apart / max(self.length, _NEAR) / 2)
        return float(far * (1 + (far**2 + 1) / (4 * freedom)) * self.variance**0.5)

    def largest(self, series: int) -> float:
        """What a mean of all series exceeds by chance in one of 1 / CHANCE maps, extrapolated from the largest of some.

        By how much, that is, it exceeds what is usual around it. The largest of many values follows Fréchet's
        distribution where their tails are heavy, and Gumbel's where they are not. The logarithm of the first, with an
        offset that matters in light tails only, is Gumbel's as well, of which two quantiles tell all.
        """
        windows = self._means[:: self.length]
        if self.length == 1:
            windows = windows[SMOOTHED // 2 : -SMOOTHED // 2] - steady(windows)
        count, some = windows.shape
        length = max(FEWEST, count if some >= _MAXIMA else count * some // _MAXIMA) if self.length == 1 else OFTEN
        blocks = windows[: count - count % length].reshape(-1, length, some)
        if blocks[:, 0].size < _FEWEST_MAXIMA:
            return 0.0
        largest = blocks.max(axis=1) - (medians(blocks) if self.length > 1 else 0)
        offset = CUT * self.variance**0.5 + 1e-9
        low, high = (log(max(0.0, float(each)) + offset) for each in np.quantile(largest, _QUANTILES))
        spread = (high - low) / (_GUMBEL[1] - _GUMBEL[0])
        bound: float = exp(min(50.0, low + spread * (log(len(blocks) * series / CHANCE) - _GUMBEL[0]))) - offset
        return bound


def _lit(means: Values, hits: Bools, total: Values, length: int, centre: float, strays: float) -> Values:
    """[S, K] The largest mean of a window that stands out, for the values that belong to what makes it stand out.

    Those are the values around which a mean of as many is at least half of it, since at the edge of a stretch it is
    half; and around which no mean of a quarter as many says that they are none of it: that lies well below it, and by
    more than chance carries it. strays: how far chance carries such a mean.
    """
    count = len(total) - 1
    level = np.zeros((count + length - 1, means.shape[1]), np.float32)
    level[length - 1 : length - 1 + len(means)] = np.where(hits, means, 0)
    width = 1
    while width < length:  # the largest of `length` windows, by doubling
        level = np.maximum(level[: len(level) - width], level[width:])
        width *= 2
    if length == 1:
        return level
    belongs = _around(total, length // 2) - centre >= level / 2
    belongs &= _around(total, max(1, length // 8)) - centre >= np.minimum(level - strays, level * _MOSTLY)
    lit: Values = np.where(belongs, level, 0)
    return lit


def _around(total: Values, half: int) -> Values:
    """[S, K] The mean of `half` values before each and as many from it on; of fewer near the ends."""
    place = np.arange(len(total) - 1)
    room = np.minimum(place, len(place) - place)
    halves = np.minimum(half, np.maximum(room, max(1, half // 4)))
    begin, end = np.maximum(place - halves, 0), np.minimum(place + halves, len(place))
    means: Values = (total[end] - total[begin]) / np.asarray(end - begin, np.float32)[:, None]
    return means
