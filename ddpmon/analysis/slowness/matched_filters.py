"""Matched filters that estimate level shifts in a series, for several kinds of noise and several lengths of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.slowness.series import BLOCK_STEPS
from ddpmon.analysis.statistics.arrays import Floats, Ints

Float32s = NDArray[np.float32]


@dataclass(frozen=True)
class Whitening:
    """A filter that turns one kind of noise into white noise.

    The noise is a varying level plus white noise. `keep` is the autocorrelation of the level between neighbouring
    steps. `gain` is the steady gain of the noise's Kalman filter (Harvey, Forecasting, Structural Time Series Models
    and the Kalman Filter, 1989, section 3.3): prediction a <- keep * a + gain * y, innovation y = x - keep * a.
    """

    keep: float
    gain: float

    @property
    def decay(self) -> float:
        """Return the share of an innovation that the next prediction still contains."""
        return self.keep * (1 - self.gain)

    @property
    def settled(self) -> float:
        """Return the innovation that remains, in the long run, after a level shift from 0 to 1."""
        return (1 - self.keep) / (1 - self.decay)

    def response(self, steps: int) -> Floats:
        """Return the innovations in the given number of training steps after a level shift from 0 to 1."""
        response: Floats = self.settled + (1 - self.settled) * np.power(self.decay, np.arange(steps))
        return response


FILTERS = (
    Whitening(0, 0),
    Whitening(1, 0.03),
    Whitening(0.97, 0.05),
    Whitening(0.94, 0.17),
    Whitening(1, 0.6),
    Whitening(0.97, 0.85),
)
"""A fixed grid of filters: for white noise, for noise that is correlated over 30 steps and more, and for sums of both.
No filter is fitted to a run. The spread of each filter's response is measured, so an unsuitable filter only misses
changes."""
LONG_FILTERS = 4
"""Number of filters, from the first one, that are used with lengths beyond SHORT. The response of the other
filters to a level shift has faded by then, so longer contrasts would not help."""
SHORT = tuple(range(4, 4 + BLOCK_STEPS))
"""Shortest lengths of contrasts in steps. Contrasts end with a block of five steps, so a change at any step is
found by one of these five lengths, 4 to 8 steps later."""
MEDIUM = (10, 20, 30)
"""Longer lengths of contrasts in steps: multiples of BLOCK_STEPS."""
SPAN_BLOCKS = 4
"""Number of blocks after which the longest contrasts are tested again. In fewer blocks, these contrasts change
little."""
SPAN = SPAN_BLOCKS * BLOCK_STEPS
LONG = (40, 80, 120, 200, 360)
"""The longest lengths of contrasts in steps: multiples of SPAN. Beyond 360 steps, noise that is correlated for as long
would hide a change anyway."""
BASELINE_RATE = BLOCK_STEPS / 5000
"""Weight of the latest block in the baseline: a lasting change is absorbed within about 5,000 steps."""
BASELINE_PRIOR = 50 // BLOCK_STEPS
"""Weight of the first block in the baseline, as a number of blocks. It is large, because the median of this block
ignores single long steps."""

CONTRASTS = tuple(
    [(number, length) for number in range(len(FILTERS)) for length in SHORT]
    + [(number, length) for number in range(LONG_FILTERS) for length in (*MEDIUM, *LONG)]
)
"""(index of the filter, length in steps) of each contrast. Contrasts that are tested in each block come first."""
CONTRASTS = tuple(sorted(CONTRASTS, key=lambda one: one[1] in LONG))
LENGTH_OF: Ints = np.array([length for _, length in CONTRASTS])
BLOCKS_OF: Ints = np.where(np.isin(LENGTH_OF, LONG), SPAN_BLOCKS, 1)
"""[K] Number of blocks after which each contrast is tested again."""
IN_EACH_BLOCK = int((BLOCKS_OF == 1).sum())


def support_of(memory: float) -> Floats:
    """Return the number of steps on which each contrast depends, [K]: its length plus at most `memory` steps."""
    before = [min(1 / max(FILTERS[number].gain, 1e-9), memory) for number, _ in CONTRASTS]
    support: Floats = LENGTH_OF + np.array(before)
    return support


def _weights(number: int, length: int) -> Floats:
    """Return the weights of a filter's latest innovations, or of their sums over spans, in the estimate of a change."""
    response = FILTERS[number].response(length)
    if length in LONG:
        response = response.reshape(-1, SPAN).sum(axis=1)
    weights: Floats = response / (response**2).sum()
    return weights


def _weights_of(filters: int, lengths: tuple[int, ...]) -> Float32s:
    """Return the weights of the first filters: [filters, lengths, innovations], the latest innovation last."""
    longest = max(len(_weights(0, length)) for length in lengths)
    every = np.zeros((filters, len(lengths), longest), np.float32)
    for number, row in np.ndindex(filters, len(lengths)):
        weights = _weights(number, lengths[row])
        every[number, row, -len(weights) :] = weights
    return every


def weights_of_contrasts() -> Floats:
    """Return the weights of the latest steps in each contrast: [K, H], the latest step first."""
    weights = np.zeros((len(CONTRASTS), 2 * LONG[-1]))
    for row, (number, length) in enumerate(CONTRASTS):
        matched = np.repeat(_weights(number, length), SPAN if length in LONG else 1)
        response = FILTERS[number].response(2 * LONG[-1])
        weights[row] = np.convolve(matched[::-1], np.diff(response, prepend=0.0))[: 2 * LONG[-1]]
    return weights


def _innovation_maps() -> tuple[Float32s, Float32s, Float32s, Float32s]:
    """Return the matrices that compute a block's innovations and the level after it, from its values and the level
    before.

    Returns:
        [F, B, B] and [F, B, 1] for innovations, [F, 1, B] and [F, 1, 1] for the level, as y = A x + b level.

    """
    count = len(FILTERS)
    values, start = np.zeros((count, BLOCK_STEPS, BLOCK_STEPS)), np.zeros((count, BLOCK_STEPS, 1))
    last, kept = np.zeros((count, 1, BLOCK_STEPS)), np.zeros((count, 1, 1))
    for number, each in enumerate(FILTERS):
        row, level = np.zeros(BLOCK_STEPS), 1.0
        for at in range(BLOCK_STEPS):
            values[number, at] = -each.keep * row
            values[number, at, at] += 1.0
            start[number, at] = -each.keep * level
            row = each.keep * row + each.gain * values[number, at]
            level = each.keep * level + each.gain * start[number, at, 0]
        last[number], kept[number] = row, level
    return values.astype("f4"), start.astype("f4"), last.astype("f4"), kept.astype("f4")


class FilterBank:
    """Filters P series of R columns block by block, and returns the contrasts that end with the block."""

    def __init__(self, series: int, columns: int) -> None:
        self.baseline: Floats = np.zeros((series, columns))
        """[P, R] Slowly moving mean of each column, before the next block."""
        self._blocks = 0
        self._maps = _innovation_maps()
        count, spans = len(FILTERS), LONG[-1] // SPAN
        self._level = np.zeros((series, count, 1, columns), np.float32)
        self._recent = np.zeros((series, count, MEDIUM[-1], columns), np.float32)
        """Innovations of the latest steps."""
        self._sums = np.zeros((series, LONG_FILTERS, spans, columns), np.float32)
        """Sums of innovations over the latest spans."""
        self._short = _weights_of(count, SHORT)
        self._medium = _weights_of(LONG_FILTERS, MEDIUM)
        self._long = _weights_of(LONG_FILTERS, LONG)

    def filter(self, values: Floats) -> Float32s:
        """Return the estimated size of a level shift at the start of each contrast: [P, BLOCK_STEPS, R] -> [P, K, R].

        K counts the first IN_EACH_BLOCK of CONTRASTS, or all of them if a span ends with this block.
        """
        around = (values - self.baseline[:, None]).astype(np.float32)[:, None]
        from_values, from_level, level_from_values, level_kept = self._maps
        innovations = from_values @ around + from_level * self._level
        self._level = level_from_values @ around + level_kept * self._level
        self._blocks += 1
        self.baseline += max(BASELINE_RATE, 1 / (self._blocks + BASELINE_PRIOR)) * (values.mean(axis=1) - self.baseline)
        self._recent = np.concatenate((self._recent[:, :, BLOCK_STEPS:], innovations), axis=2)
        series, _, _, columns = innovations.shape
        parts = [self._short @ self._recent[:, :, -SHORT[-1] :], self._medium @ self._recent[:, :LONG_FILTERS]]
        if self._blocks % SPAN_BLOCKS == 0:
            span = self._recent[:, :LONG_FILTERS, -SPAN:].sum(axis=2, keepdims=True)
            self._sums = np.concatenate((self._sums[:, :, 1:], span), axis=2)
            parts.append(self._long @ self._sums)
        return np.concatenate([part.reshape(series, -1, columns) for part in parts], axis=1)
