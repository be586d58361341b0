"""Contrasts of a set of series, judged by their measured spread: which of them are larger than chance makes them."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np

from ddpmon.analysis.slowness.matched_filters import LENGTH_OF, FilterBank, Float32s
from ddpmon.analysis.slowness.series import BLOCK, Clip
from ddpmon.analysis.slowness.spread import FEW_RANKS, PastSpread, PeerSpread, t_of_z, z_of_t
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.threshold import Threshold

CHANGE_Z = Threshold(
    6.0,
    of="z of a contrast of 8 steps, 8 ranks, six series, steps of 46 ms",
    why="188,000 blocks a day at 48 series of 105 contrasts, many alike. In 13 hours of eleven noises and mixtures "
    "there was no false signal that cost 2%.",
)
ALL_RANKS_Z = Threshold(
    6.5,
    of="the same, of series of all ranks together",
    why="no other series shows the tails of their noise: in 1.8 hours of skewed bursts, the worst noise, there were "
    "three false signals with 6.0 and one with 6.5, in 7 hours of other noise none.",
)
LONGER_Z = 0.13
"""What less of z is asked for each doubling of a contrast's length: contrasts of many steps change slowly from look to
look, so that there are fewer of them that could be false."""
SMALLEST = Threshold(
    0.005,
    of="share of a step that a change is at least",
    why="a quarter of what costs 2% of the run; any two ranks differ by less if compared for long enough.",
)
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
RECORD_FADES = 1e-3
"""What a record loses with each block: it is that of the last 10,000 steps."""
RECORD_DELAY = 38
"""Blocks until a record counts for the column that set it: no contrast reaches further back."""
STEADY = 5e-4
"""Share of a step that a spread is at least: clocks and schedulers stray by as much where a run is made of sleeps."""
SETTLING = 8
"""Steps beyond its length after which a contrast is judged first."""


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
        self.latest = self._clip(values, self._bank.baseline, step_ms)
        contrasts = self._bank.filter(self.latest)
        ready = (self._steps >= LENGTH_OF + SETTLING) & (self._shortest <= LENGTH_OF)
        freedom = self._spread.freedom()
        chances = self._chances * max(1.0, REFERENCE_STEP_MS / step_ms)
        asked = sqrt(self._asked_z**2 + 2 * log(chances)) - LONGER_Z * np.log2(LENGTH_OF / LENGTH_OF.min())
        critical = np.where(ready, t_of_z(asked, freedom), np.inf)
        scale = np.sqrt(self._spread.variance(contrasts, (STEADY * step_ms) ** 2))
        share = contrasts / np.maximum(scale * critical[:, None], SMALLEST.enter * step_ms)
        largest = np.stack((share.max(axis=1), -share.min(axis=1))).astype(np.float32)
        beyond = largest >= np.maximum(1.0, RECORD.enter * self._record_to_beat())
        hits = []
        for down, series, column in zip(*np.nonzero(beyond), strict=True):
            best = int((share[series, :, column].argmin if down else share[series, :, column].argmax)())
            size = float(contrasts[series, best, column])
            spread = scale[series, best, column if scale.shape[2] > 1 else 0]
            z = float(z_of_t(np.array(abs(size) / spread), freedom[best]))
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
