"""Contrasts of a set of series, judged by their measured spread: which of them are larger than chance makes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ddpmon.analysis.slowness.matched_filters import LENGTH_OF, SHORT, FilterBank, Float32s
from ddpmon.analysis.slowness.series import BLOCK, SMALLEST, STEADY, Clip
from ddpmon.analysis.slowness.spread import (
    FEW_RANKS,
    MEMORY,
    PastSpread,
    PeerSpread,
    t_of_z,
    unseen_covariance,
    unseen_share,
    z_of_t,
)
from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.threshold import Threshold

CHANGE_Z = Threshold(
    6.2,
    of="z of a contrast of 4 steps, 8 ranks, six series, steps of 46 ms",
    why="376,000 blocks a day of 46 ms steps at 48 series of 62 contrasts, many alike.",
)
ALL_RANKS_Z = Threshold(
    6.7,
    of="the same, of series of all ranks together",
    why="no other series shows the tails of their noise: an earlier version, of blocks of ten steps, had three false "
    "signals in 1.8 hours of skewed bursts with 6.1, one with 6.6, and none in 7 hours of other noise.",
)
LONGER_Z = 0.13
"""What less of z is asked for each doubling of a contrast's length: contrasts of many steps change slowly from look to
look, so that there are fewer of them that could be false."""
REFERENCE_RANKS = 8
"""Ranks for which CHANGE_Z holds. More ranks are more chances: the normal tail asks z^2 + 2 ln(times as many)."""
REFERENCE_STEP_MS = 46.0
"""Length of the steps for which it holds; shorter ones are judged more often a day."""
RECORD = Threshold(
    1.25,
    of="times the largest z before, of other ranks or of earlier steps, that a z is at least",
    why="noise with heavy tails sets records that a normal distribution does not, whose record is about "
    "4.5 in 10,000 steps: a quarter more than that is below CHANGE_Z, so that plain noise costs no power.",
)
RECORD_FADES = BLOCK / 10_000
"""What a record loses with each block: it is that of the last 10,000 steps."""
RECORD_DELAY = 380 // BLOCK
"""Blocks until a record counts for the column that set it: no contrast reaches further back."""
MOST_WIDER = 0.4
"""Share by which the limit of the clip is wider early in a run, at most: two single steps of five make no signal."""
SETTLING = 8
"""Steps beyond its length after which a contrast is judged first."""


def asked_z(of_short: float, steps: Ints | int, chances: float) -> Floats:
    """Return z from which on a contrast of some steps is a signal.

    Args:
        of_short: z of the shortest contrasts, at REFERENCE_RANKS and REFERENCE_STEP_MS.
        steps: Lengths of contrasts.
        chances: Times as many contrasts as there.

    """
    asked: Floats = np.sqrt(of_short**2 + 2 * np.log(chances)) - LONGER_Z * np.log2(np.asarray(steps) / SHORT[0])
    return asked


class Hit(NamedTuple):
    """A contrast that chance does not explain."""

    series: int
    column: int
    size: float
    """Estimate of the change in ms, of clipped values; negative where it became faster."""
    z: float
    length: int
    """Steps since it began, about."""


class Contrasts:
    """Filters series and tests every column of them in both directions."""

    def __init__(self, series: int, columns: int, *, peers: bool, asked_z: float, shortest: int = 0) -> None:
        self._clip, self._bank = Clip(), FilterBank(series, columns)
        among_peers = peers and columns > FEW_RANKS
        self._spread = PeerSpread(series, columns) if among_peers else PastSpread(series, columns)
        self._chances = max(1.0, columns / REFERENCE_RANKS)
        self._peers = among_peers
        self._columns = columns
        self._asked_z, self._shortest = asked_z, shortest
        self._record = np.zeros((2, series, columns), np.float32)
        """Largest z as a share of what is asked, of each direction and column."""
        self._waiting: list[Float32s] = []
        self._steps = 0
        self.latest: Floats = np.zeros((series, BLOCK, columns))
        """The clipped values of the last block."""

    def judge(self, values: Floats, step_ms: float) -> list[Hit]:
        """Return the strongest contrast of each column and direction that exceeds its threshold.

        Args:
            values: [P, BLOCK, R] in ms.
            step_ms: Typical length of a step.

        """
        if not self._steps:
            self._bank.baseline += np.median(values, axis=1)
        self._steps += BLOCK
        single = self._columns == 1
        # Few steps or ranks ask for a large t, which a tight limit would rule out.
        wider = 0.0 if single else min(MOST_WIDER, 2 * unseen_covariance(self._steps, self._columns))
        self.latest = self._clip(values, self._bank.baseline, step_ms, wider)
        contrasts, variance = self._spread.measure(self._bank.filter(self.latest), self.latest, (STEADY * step_ms) ** 2)
        count = contrasts.shape[1]
        ready = np.zeros(len(LENGTH_OF), bool)
        ready[:count] = (self._steps >= LENGTH_OF[:count] + SETTLING) & (self._shortest <= LENGTH_OF[:count])
        # Noise that wanders more than it has shown yet makes the variance larger by so much, at most.
        of_step = 0.0 if single else unseen_share(self._steps, self._columns)
        unseen = of_step * np.square(self._clip.scale)[:, None] * (LENGTH_OF[:count] < 2 * MEMORY)
        freedom = self._spread.freedom()[:count] * np.square(1 + unseen / variance.mean(axis=2))
        chances = self._chances * max(1.0, REFERENCE_STEP_MS / step_ms)
        critical = np.where(ready[:count], t_of_z(asked_z(self._asked_z, LENGTH_OF[:count], chances), freedom), np.inf)
        scale, noisier = np.sqrt(variance + unseen[..., None]), np.sqrt(self._spread.noisier())
        asked = np.maximum(scale * critical[..., None], SMALLEST.enter * step_ms)
        share = contrasts / asked.astype(np.float32)
        largest = np.stack((share.max(axis=1), -share.min(axis=1))) / noisier.astype(np.float32)
        beyond = largest >= np.maximum(1.0, RECORD.enter * self._record_to_beat())
        hits = []
        for down, series, column in zip(*np.nonzero(beyond), strict=True):
            best = int((share[series, :, column].argmin if down else share[series, :, column].argmax)())
            size = float(contrasts[series, best, column])
            spread = scale[series, best, column % scale.shape[2]] * noisier[series, column]
            z = float(z_of_t(np.array(abs(size) / spread), freedom[series, best]))
            hits.append(Hit(int(series), int(column), size, z, int(LENGTH_OF[best])))
        self._spread.learn(contrasts, beyond.any(axis=0), ready)
        self._set_record(np.where(beyond, 0.0, largest))
        return hits

    def _record_to_beat(self) -> Float32s:
        """[2, P, R] The record of the other ranks, or of steps before those that the present contrasts depend on."""
        top: Float32s = self._record.max(axis=2, keepdims=True)
        if not self._peers:
            return top
        second = np.partition(self._record, -2, axis=2)[..., -2:-1]
        return np.where(self._record == top, second, top)

    def _set_record(self, largest: Float32s) -> None:
        """Take the present values as records. largest: [2, P, R], 0 where there is a signal."""
        if not self._peers:
            self._waiting.append(largest)
            if len(self._waiting) <= RECORD_DELAY:
                return
            largest = self._waiting.pop(0)
        self._record = np.maximum((1 - RECORD_FADES) * self._record, largest)
