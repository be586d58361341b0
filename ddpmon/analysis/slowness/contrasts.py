"""Detection of significant contrasts. A contrast estimates by how much the level of a series changed in its last
steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ddpmon.analysis.slowness.matched_filters import LENGTH_OF, SHORT, FilterBank
from ddpmon.analysis.slowness.series import BLOCK_STEPS, MIN_CHANGE_SHARE, MIN_SPREAD_SHARE, Clip
from ddpmon.analysis.slowness.spread import FEW_RANKS, PastSpread, PeerSpread, StepNoise, uncertain
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.threshold import Threshold

CHANGE_Z = Threshold(
    6.2,
    of="z-score of a contrast over 4 steps, in a run with 8 ranks, six series for each rank, and steps of 46 ms",
    why="The threshold keeps false signals rare over a day of steps of 46 ms. Such a day has 376,000 blocks of "
    "steps. In a block, the engine tests up to 62 contrasts of each of the 48 series. Many contrasts are correlated.",
)
ALL_RANKS_Z = Threshold(
    6.7,
    of="z-score of a contrast in a series of all ranks together; otherwise as for `CHANGE_Z`",
    why="For a series of all ranks, there are no other ranks that show how heavy the tails of the noise are. "
    "In 1.8 hours of skewed bursts, an earlier version gave three false signals with a threshold of 6.1, "
    "and one with 6.6. In 7 hours of other noise, it gave none. That version used blocks of ten steps.",
)
LONGER_Z = 0.13
"""Reduction of the required z for each doubling of a contrast's length. Long contrasts change slowly, so successive
tests are less independent and give fewer false signals."""
REFERENCE_RANKS = 8
"""Number of ranks for which CHANGE_Z holds. More ranks are more tests, so the square of the required z grows by 2
ln(number of ranks / 8), as the tail of the normal distribution requires."""
REFERENCE_STEP_MS = 46.0
"""Step length in ms for which CHANGE_Z holds. Shorter steps mean more tests per day."""
SETTLING = 8
"""Number of steps, beyond a contrast's length, that must pass before the contrast is tested for the first time."""


def asked_z(of_short: float, steps: Ints | int, chances: float) -> Floats:
    """Return the minimum z at which a contrast is a signal.

    Args:
        of_short: Minimum z of the shortest contrasts, with REFERENCE_RANKS ranks and steps of REFERENCE_STEP_MS.
        steps: Lengths of the contrasts in steps.
        chances: Number of tests per day, as a multiple of the number for REFERENCE_RANKS and REFERENCE_STEP_MS.

    """
    asked: Floats = np.sqrt(of_short**2 + 2 * np.log(chances)) - LONGER_Z * np.log2(np.asarray(steps) / SHORT[0])
    return asked


class Hit(NamedTuple):
    """A contrast that is too large to be chance."""

    series: int
    column: int
    size: float
    """Estimate of the change in ms, from clipped values; negative if the column became faster."""
    z: float
    length: int
    """Approximate number of steps since the change."""


class Contrasts:
    """Filters series and tests every column of them for changes in both directions."""

    def __init__(self, series: int, columns: int, *, peers: bool, asked_z: float, shortest: int = 0) -> None:
        self._clip, self._bank = Clip(), FilterBank(series, columns)
        among_peers = peers and columns > FEW_RANKS
        self._spread = PeerSpread(series, columns) if among_peers else PastSpread(series, columns)
        self._noise = StepNoise(series, columns)
        self._chances = max(1.0, columns / REFERENCE_RANKS)
        self._asked_z, self._shortest = asked_z, shortest
        self._steps = 0
        self.latest: Floats = np.zeros((series, BLOCK_STEPS, columns))
        """[P, BLOCK_STEPS, R] The clipped values of the last block."""

    def judge(self, values: Floats, step_ms: float) -> list[Hit]:
        """Return the strongest contrast of each column and direction that exceeds its threshold.

        Args:
            values: [P, BLOCK_STEPS, R] Values of a block, in ms.
            step_ms: Typical length of a step.

        """
        if not self._steps:
            self._bank.baseline += np.median(values, axis=1)
        self._steps += BLOCK_STEPS
        baseline = self._bank.baseline.copy()
        self.latest = self._clip(values, baseline, step_ms)
        around = self.latest - baseline[:, None]
        self._noise.add_block(around)
        floor = (MIN_SPREAD_SHARE * step_ms) ** 2
        contrasts, measured, tails = self._spread.measure(self._bank.filter(self.latest), floor)
        count = contrasts.shape[1]
        ready = np.zeros(len(LENGTH_OF), bool)
        ready[:count] = (self._steps >= LENGTH_OF[:count] + SETTLING) & (self._shortest <= LENGTH_OF[:count])
        chances = self._chances * max(1.0, REFERENCE_STEP_MS / step_ms)
        critical = asked_z(self._asked_z, LENGTH_OF[:count], chances)
        most = measured * uncertain(self._spread.freedom()[:count], critical)[:, None]
        variance, noisier = self._noise.variance(most, tails)
        scale = np.sqrt(variance + floor)
        asked = (scale * np.where(ready[:count], critical, np.inf)[:, None]).astype(np.float32)
        times = np.sqrt(noisier)[:, None].astype(np.float32)
        share = contrasts / np.maximum(asked * times, np.float32(MIN_CHANGE_SHARE * step_ms))
        beyond = np.stack((share.max(axis=1), -share.min(axis=1))) >= 1.0
        slow: Bools = beyond[0] | beyond[1]
        hits = []
        for down, series, column in zip(*np.nonzero(beyond), strict=True):
            best = int((share[series, :, column].argmin if down else share[series, :, column].argmax)())
            size = float(contrasts[series, best, column])
            one = scale[series, best, column % scale.shape[2]] * times[series, 0, column]
            hits.append(Hit(int(series), int(column), size, abs(size) / float(one), int(LENGTH_OF[best])))
        self._spread.learn(contrasts, slow, ready)
        self._noise.learn_wandering(around, slow)
        return hits
