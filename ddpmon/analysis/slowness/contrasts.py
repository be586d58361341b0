"""Contrasts of a set of series, judged by their measured spread: which of them are larger than chance makes them."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np

from ddpmon.analysis.slowness.filters import LENGTH_OF, FilterBank
from ddpmon.analysis.slowness.series import BLOCK, Clip
from ddpmon.analysis.slowness.spread import FEW_RANKS, PastSpread, PeerSpread, t_of_z, z_of_t
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.threshold import Threshold

CHANGE_Z = Threshold(
    6.0,
    of="z of a contrast of 8 steps, 8 ranks, six series, steps of 46 ms",
    why="188,000 blocks a day at 48 series of 105 contrasts, many alike: at most one false signal a day in noise",
)
LONGER_Z = 0.13
"""What less of z is asked for each doubling of a contrast's length: contrasts of many steps change slowly from look to
look, so that there are fewer of them that could be false."""
SMALLEST = Threshold(
    0.005,
    of="share of a step that a change is at least",
    why="less is beyond what costs 2% of the run by far, and true of every two ranks that a day compares",
)
REFERENCE_RANKS = 8
REFERENCE_STEP_MS = 46.0
"""What CHANGE_Z holds for. More ranks and shorter steps are more chances a day, of which the normal tail asks
z^2 = CHANGE_Z^2 + 2 ln(times as many)."""
STEADY_MS = 5e-4
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

    def __init__(self, series: int, columns: int, *, peers: bool) -> None:
        self._clip, self._bank = Clip(), FilterBank(series, columns)
        among_peers = peers and columns > FEW_RANKS
        self._spread = PeerSpread(series, columns) if among_peers else PastSpread(series, columns)
        self._chances = max(1.0, columns / REFERENCE_RANKS)
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
        ready = self._steps >= LENGTH_OF + SETTLING
        freedom = self._spread.freedom()
        chances = self._chances * max(1.0, REFERENCE_STEP_MS / step_ms)
        asked = sqrt(CHANGE_Z.enter**2 + 2 * log(chances)) - LONGER_Z * np.log2(LENGTH_OF / LENGTH_OF.min())
        critical = np.where(ready, t_of_z(asked, freedom), np.inf)
        scale = np.sqrt(self._spread.variance(contrasts, (STEADY_MS * step_ms) ** 2))
        share = contrasts / np.maximum(scale * critical[:, None], SMALLEST.enter * step_ms)
        hits, slow = [], np.zeros((len(values), values.shape[2]), bool)
        for sign in (1, -1):
            beyond = (share.max(axis=1) if sign > 0 else -share.min(axis=1)) >= 1
            slow |= beyond
            for series, column in zip(*np.nonzero(beyond), strict=True):
                best = int((sign * share[series, :, column]).argmax())
                size = float(contrasts[series, best, column])
                spread = scale[series, best, column if scale.shape[2] > 1 else 0]
                z = float(z_of_t(np.array(abs(size) / spread), freedom[best]))
                hits.append(Hit(int(series), int(column), size, z, int(LENGTH_OF[best])))
        self._spread.learn(contrasts, slow, ready)
        return hits
