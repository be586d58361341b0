"""How long noise stays alike, and what that does to means: white noise and a part that wanders, fitted to a window.

Half the mean square of differences between blocks `h` apart (Matheron's variogram) is level for white noise and goes on
rising while blocks still resemble each other. A nugget and an exponential, c0 + c1 (1 - exp(-h / lasts)), describe both
(white noise on top of a first-order autoregression), and give the variance of a mean of any length around where it
wanders about, beyond what the window shows. Of SEVERAL ranks and more, how far such means of a typical rank were from
its peers' tells their variance itself, lasting differences between ranks included, and the fit how it goes on from
there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import log
from statistics import NormalDist

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints, median, running_total

BLOCK = 8
"""Steps of a block; fewer in a window too short for FEWEST_BLOCKS of them."""
FEWEST_BLOCKS = 6
"""Blocks that a window is cut into at least, so that some lie apart."""
LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Distances in blocks; up to a third of the window."""
LASTING = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""In blocks: how long the wandering part stays alike, tried in turn."""
SOME, NEAR = 64, 2
"""Ranks that tell the noise of twice as many and more, and lags that tell how noisy each of those is."""
FEW = 3
"""Ranks of which one that is late shifts the excess of the others."""
SEEN = (1, 2, 4, 8, 16, 32)
"""Lengths in blocks of the means whose spread is seen."""
FEWEST_SEEN = 24
"""Blocks of all ranks that tell how means over them vary."""
TAILS = (1, 2, 4)
"""Lengths in blocks of the means whose tails are seen; longer ones are nearly normal."""
FEWEST_TAIL = 16
"""Values of a length whose third largest difference tells a tail: it is 1.4 standard deviations out."""
CUTS = 4
"""Ways to cut a window into blocks, of which none is the right one."""
RARE, RARE_OF_FEW = 9.2, 4.4
"""Standard deviations at which a tail is asked; few ranks tell it badly."""
HEAVIEST = 3.4
"""Times as far as normal values that exponential ones stray where they are as rare: what has heavier tails in means of
some steps comes and goes, and is no noise."""
SEVERAL = 7
"""Ranks whose excesses one that is late shifts little."""
SPREAD = 1.0
"""Standard errors by which noise may stray more than a typical rank did about its peers in the window."""
PLAUSIBLE, PLAUSIBLE_OF_FEW = 1.5, 1.0
"""Of the fits whose sum of squared standard errors exceeds the best one's by no more, the worst counts; of few ranks
the others' could not be separated from it at all."""


@dataclass(frozen=True)
class Wandering:
    """Noise of a rank that is as noisy as the mean of all."""

    block: int
    nuggets: Floats
    """[plausible fits] Variance of a block's mean that no other block shares."""
    wanders: Floats
    """[fits] The same of what neighbours share."""
    lasting: Floats
    """[fits] In blocks."""
    seen_blocks: Floats
    seen: Floats
    """[lengths] How means over so many blocks vary about the peers, as a typical rank's did; none of few ranks."""
    tails: Floats
    """[TAILS] How many times as far as normal values rare means over so many blocks stray, for what is rarer still."""
    relative: Floats
    """[R] Each rank's variance over the mean of all."""
    ranks: int
    freedom: int
    """Degrees of freedom of the variance of a block."""

    def variances(self, steps: Floats | Ints) -> Floats:
        """Of means over so many neighbouring steps: the largest of the plausible fits."""
        blocks = np.maximum(steps / self.block, 1.0)
        variance = self._fitted(blocks)
        if len(self.seen):
            length = np.searchsorted(self.seen_blocks, blocks, side="right") - 1
            ratio = self.seen[length] / np.maximum(self._fitted(self.seen_blocks)[length], 1e-30)
            # Of few ranks one that is late shifts all excesses: what was seen is then no more than the most it can be.
            variance *= ratio if self.ranks >= SEVERAL else np.minimum(1.0, ratio)
        rare = self.tails[np.searchsorted(TAILS, blocks, side="right") - 1]
        tailed: Floats = variance * rare**2
        return tailed

    def _fitted(self, blocks: Floats) -> Floats:
        blocks, keep = blocks[..., None], np.exp(-1 / self.lasting)
        alike = (1 + keep) / (1 - keep) / blocks - 2 * keep * (1 - keep**blocks) / (blocks * (1 - keep)) ** 2
        largest: Floats = (self.nuggets / blocks + self.wanders * alike).max(axis=-1)
        return largest

    @property
    def per_step(self) -> float:
        """Variance of a long sum over its steps."""
        keep = np.exp(-1 / self.lasting)
        return float((self.nuggets + self.wanders * (1 + keep) / (1 - keep)).max()) * self.block


@cache
def untrimmed(share: float) -> float:
    """The mean square of normal values over that of the smallest `share` of them."""
    edge = NormalDist().inv_cdf((1 + share) / 2)
    return share / (share - 2 * edge * NormalDist().pdf(edge))


def wandering(total: Floats) -> Wandering:
    """Fitted to [S + 1, R] running totals of excesses, S at least 6."""
    steps, ranks = len(total) - 1, total.shape[1]
    block = max(1, min(BLOCK, steps // FEWEST_BLOCKS))
    count = steps // block
    means = np.diff(total[steps - count * block :: block], axis=0) / block
    lags = np.array([lag for lag in LAGS if lag <= max(1, count // 3)])
    some = slice(None, None, max(1, ranks // SOME))
    squares = np.array([_half_square(means[:, some], lag) for lag in lags])
    together = squares.mean(axis=1)
    series = squares.shape[1] if ranks > 2 else 1  # of two ranks each one's excess is the other's
    freedom = series * count / (1.5 * lags)
    near = min(len(lags), NEAR) if ranks > 2 * SOME else len(lags)
    each = squares[:near] if ranks < 2 * SOME else np.array([_half_square(means, lag) for lag in lags[:near]])
    relative = (each / np.maximum(together[:near], 1e-30)[:, None] * freedom[:near, None]).sum(axis=0)
    relative /= freedom[:near].sum()
    nuggets, wanders, lasting = _fits(lags, together, freedom, PLAUSIBLE if ranks > FEW else PLAUSIBLE_OF_FEW)
    seen_blocks, seen = _seen(means) if ranks > FEW else (np.ones(0), np.ones(0))
    tails, certain = _tails(total[:, some], block), max(2, int(freedom[0]))
    return Wandering(block, nuggets, wanders, lasting, seen_blocks, seen, tails, relative, ranks, certain)


def tells_tails(steps: int) -> bool:
    """Whether so many steps have blocks enough to see how far rare means stray."""
    return steps // max(1, min(BLOCK, steps // FEWEST_BLOCKS)) >= FEWEST_TAIL


def of_one(values: Floats) -> tuple[float, float, float]:
    """Of single values, the best fit: variance of the white part, of the wandering one, and how long that lasts."""
    return of_each(values[None])[0]


def of_each(series: Floats) -> list[tuple[float, float, float]]:
    """The same of some series of equal length: [C, S]."""
    steps = series.shape[1]
    lags = np.array([lag for lag in (*LAGS, 32, 48) if lag <= max(1, steps // 4)])
    columns = series.T
    squares = np.array([_half_square(columns, lag) for lag in lags])
    nuggets, wanders, lasting, off = _lines(lags, squares.T, steps / lags)
    best = off.argmin(axis=1)
    every = np.arange(len(best))
    return list(zip(nuggets[every, best].tolist(), wanders[every, best].tolist(), lasting[best].tolist(), strict=True))


def _half_square(means: Floats, lag: int) -> Floats:
    """[R] Half the mean square of differences so far apart, without the largest, which may hold a change."""
    squares = means[lag:] - means[:-lag]
    np.square(squares, out=squares)
    squares /= 2
    left = len(squares) - min(2 * lag, len(squares) // 2)
    squares.partition(left - 1, axis=0)  # in place, and no `mean`: this is asked hundreds of times in a judgement
    smallest: Floats = np.add.reduce(squares[:left], axis=0) / left * untrimmed(left / len(squares))
    return smallest


def _seen(means: Floats) -> tuple[Floats, Floats]:
    """By length in blocks: the mean square over the median rank's excesses, and by how much chance may hide of it."""
    lengths, values = [], []
    total = running_total(means)
    for length in SEEN:
        count = len(means) // length
        if length > 1 and count * means.shape[1] < FEWEST_SEEN:
            break
        ends = total[len(means) - count * length :: length]
        squares = np.square(np.diff(ends, axis=0) / length).mean(axis=0)
        of_normal = (1 - 2 / (9 * count)) ** 3  # a median of means of so many squares (Wilson and Hilferty, 1931)
        high = 1 + SPREAD * (2 / (count * means.shape[1])) ** 0.5
        lengths.append(float(length))
        values.append(median(squares) / of_normal * high)
    return np.array(lengths), np.array(values)


def _tails(total: Floats, block: int) -> Floats:
    """Of a typical rank, for each length of TAILS, if there are enough blocks.

    total: [S + 1, R] running totals.
    """
    tails: list[float] = []
    for length in TAILS:
        size, last = block * length, len(total) - 1
        if last // size < FEWEST_TAIL:
            tails.append(tails[-1] if tails else 1.0)
            continue
        ends = [end for end in range(last, last - size, -max(1, size // CUTS)) if end // size >= FEWEST_TAIL]
        slopes = [_tail_slope(np.diff(total[end % size : end + 1 : size], axis=0)) for end in ends]
        rare = RARE if total.shape[1] >= SEVERAL else RARE_OF_FEW
        tails.append(min(HEAVIEST, rare ** max(0.0, sum(slopes) / len(slopes))))
    return np.array(tails)


def _tail_slope(values: Floats) -> float:
    """How the quantiles of a typical rank's values grow beyond normal ones: as which power of those.

    From differences of neighbours, of which a change that lasts makes one large, and an end another: the third.
    """
    count = len(values)
    third = np.partition(np.abs(np.diff(values, axis=0)), count - 4, axis=0)[count - 4]
    usual = _half_square(values, 1) * 2
    normal = NormalDist().inv_cdf(1 - 2.625 / (count - 0.75) / 2)  # of the third largest (Blom, 1958)
    return log(max(median(third / np.sqrt(np.maximum(usual, 1e-30))) / normal, 1e-9)) / log(normal)


def _fits(lags: Ints, together: Floats, freedom: Floats, plausible: float = PLAUSIBLE) -> tuple[Floats, Floats, Floats]:
    """Nuggets, wandering parts, and how long those last, of all fits that are plausible."""
    nuggets, wanders, lasting, off = _lines(lags, together[None], freedom)
    kept = off[0] <= off[0].min() + plausible
    return nuggets[0, kept], wanders[0, kept], lasting[kept]


def _lines(lags: Ints, squares: Floats, freedom: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Of each series every fit that is tried: [C, F] nugget and wandering part, [F] how long it lasts, how far off.

    squares: [C, lags]
    """
    weight = freedom / np.maximum(2 * np.square(squares), 1e-60)
    lasts = np.array(LASTING)
    rise = 1 - np.exp(-lags / lasts[:, None])
    # Weighted least squares of a line for each; neither part is below zero, so that where the line's is, one is none.
    weighted = weight * squares
    w, wy = weight.sum(axis=1)[:, None], weighted.sum(axis=1)[:, None]
    wx, wxx, wxy = weight @ rise.T, weight @ np.square(rise).T, weighted @ rise.T
    determinant = w * wxx - wx * wx
    line = (determinant > 1e-12 * w * wxx) & (len(lags) > 1)
    over = np.where(line, determinant, 1.0)
    nugget, wanders = (wxx * wy - wx * wxy) / over, (w * wxy - wx * wy) / over
    line &= (nugget >= 0) & (wanders >= 0)
    none = np.zeros_like(nugget)
    nuggets = np.concatenate([np.where(line, nugget, wy / w), none], axis=1)
    parts = np.concatenate([np.where(line, wanders, none), wxy / wxx], axis=1)
    rises = np.vstack([rise, rise])
    left = squares[:, None] - nuggets[..., None] - parts[..., None] * rises
    off = (np.square(left) * weight[:, None]).sum(axis=2)
    off[:, len(lasts) :][line] = np.inf
    return nuggets, parts, np.concatenate([lasts, lasts]), off
