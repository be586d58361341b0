"""The spread that chance gives a contrast, measured on the same contrast of other ranks and of earlier steps."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.slowness.filters import (
    CONTRASTS,
    FILTER_OF,
    REFERENCE,
    SUPPORT_OF,
    WITH_BASELINE,
    Float32s,
)
from ddpmon.analysis.slowness.series import BLOCK, sample_of
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.threshold import Threshold

FORGET = 1 / 2000
"""What the measured spread forgets with each block: it follows the noise of the last 20,000 steps."""
FORGET_SOON = 1 / 50
"""The same for the second, shorter memory that shows noise that has grown: the last 500 steps."""
LARGEST = 12.0
"""Multiple of the mean square at which a square is cut off before it is learned: else a fault teaches its own spread."""
INDEPENDENT = 1.3
"""Independent values for each stretch of a contrast's support: contrasts overlap, and their ends forget. Measured on
white and wandering noise: the quantiles of z then are those of a normal distribution."""
FEWEST_FREEDOM = Threshold(
    5.0,
    of="degrees of freedom of the measured spread",
    why="with fewer a t value has no fourth moment, and an approximate count of them decides what is told",
)
NOW_SHARE = Threshold(
    0.5,
    of="share of the other ranks' present mean square that a spread is at least",
    why="noise that all ranks have at once, as on a busy machine, is noticed in the block in which it begins",
)
FEW_RANKS = 3
"""Ranks up to which the others do not tell the spread: one of two is as far from the other as the other from it."""
LOOKS_BEFORE_PEERS = 3
"""Blocks after which the spread of the other ranks counts."""


def z_of_t(t: Floats, freedom: Floats) -> Floats:
    """Return t values as normal ones of the same probability (Wallace, Ann. Math. Stat. 30, 1959)."""
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    z: Floats = np.sign(t) * factor * np.sqrt(freedom * np.log1p(t * t / freedom))
    return z


def t_of_z(z: Floats, freedom: Floats) -> Floats:
    """Return the t values that `z_of_t` takes to these; inf where there are too few degrees of freedom."""
    enough = np.maximum(freedom, FEWEST_FREEDOM.enter)
    exponent = np.minimum((z * (8 * enough + 3) / (8 * enough + 1)) ** 2 / enough, 50.0)
    t: Floats = np.where(freedom >= FEWEST_FREEDOM.enter, np.sqrt(enough * np.expm1(exponent)), np.inf)
    return t


class PeerSpread:
    """The spread of a rank's contrasts as those of the other ranks have it, up to now.

    Ranks are exchangeable as long as none differs, whatever their noise: correlated, or of any distribution. A rank with
    more noise of its own than others have gets a spread that is larger by as much.
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._sample = sample_of(ranks)
        self._all = self._sample.step == 1
        count = len(range(ranks)[self._sample])
        self._squares: Floats = np.zeros((series, len(CONTRASTS), count), np.float32)
        self._fourth = np.zeros((series, len(CONTRASTS)))
        self._looks = 0.0
        self._judged = np.zeros(len(CONTRASTS))
        self._reference = np.zeros((2, series, ranks))
        """Mean squares of the reference contrast, over a long and a short memory; the last two blocks are left out."""
        self._waiting: list[Floats] = []

    def freedom(self) -> Floats:
        """[K] Degrees of freedom."""
        peers = self._squares.shape[2] - 2
        freedom: Floats = peers * (1 + INDEPENDENT * self._judged * BLOCK / SUPPORT_OF)
        return np.where(self._judged < LOOKS_BEFORE_PEERS - 0.5, 0.0, freedom)

    def variance(self, contrasts: Float32s, floor: float) -> Floats:
        """[P, K, R] -> [P, K, R], or [P, K, 1] where it is learned from a sample. floor: smallest variance."""
        count = self._squares.shape[2]
        looks = np.maximum(self._judged, 1)[:, None]
        now = np.square(contrasts[..., self._sample])
        least_now = NOW_SHARE.enter * (now.sum(axis=2) - now.max(axis=2)) / (count - 1)
        total = self._squares.sum(axis=2, keepdims=True)
        others = (total - self._squares) / (count - 1) if self._all else total / count
        variance = np.maximum(others / looks, least_now[..., None])
        mean = np.maximum(total[..., 0] / count / looks[:, 0], 1e-30)
        tails = np.sqrt(np.clip(self._fourth / looks[:, 0] / mean**2 / 3, 1, 4))
        return np.maximum(variance * tails[..., None], floor) * self._noisier()[:, None]

    def _noisier(self) -> Floats:
        """[P, R] Ratio of each rank's mean square to that of the others, at least 1."""
        if self._judged[REFERENCE] < 8:
            return np.ones(self._reference.shape[1:])
        sample = self._reference[..., self._sample]
        total = sample.sum(axis=-1, keepdims=True)
        count = sample.shape[-1]
        others = (total - self._reference) / (count - 1) if self._all else total / count
        ratio: Floats = (self._reference / np.maximum(others, 1e-30)).max(axis=0)
        return np.clip(ratio, 1.0, 25.0)

    def learn(self, contrasts: Float32s, slow: Bools, ready: Bools) -> None:
        """Add the squares of these contrasts. slow: [P, R] those whose signal stands. ready: [K] those judged."""
        kept = 1 - FORGET
        count = self._squares.shape[2]
        looks = np.maximum(self._judged, 1)[:, None]
        usual = self._squares.sum(axis=2, keepdims=True) / count / looks
        limit = np.where(slow[:, None, self._sample], usual, LARGEST * usual)
        limit[:, self._judged == 0] = np.inf
        squares = np.minimum(np.square(contrasts[..., self._sample]), limit) * ready[:, None]
        self._squares *= kept
        self._squares += squares
        self._fourth = kept * self._fourth + np.square(squares).mean(axis=2)
        self._judged = kept * self._judged + ready
        if ready[REFERENCE]:
            typical = usual[:, REFERENCE]
            most = np.where(slow, typical, LARGEST * typical) if self._judged[REFERENCE] > 1 else np.inf
            self._waiting.append(np.minimum(np.square(contrasts[:, REFERENCE]), most))
            if len(self._waiting) > 2:
                square = self._waiting.pop(0)
                self._looks += 1
                for memory, forget in enumerate((FORGET, FORGET_SOON)):
                    rate = max(1 / self._looks, forget)
                    self._reference[memory] += rate * (square - self._reference[memory])


class PastSpread:
    """The spread of contrasts as earlier steps have it, from before those on which the present ones depend.

    For two or three ranks, and for series of all ranks together, of which there is one only.
    """

    def __init__(self, series: int, columns: int) -> None:
        self._delay: Ints = np.ceil(SUPPORT_OF / BLOCK).astype(int)
        self._pending = np.zeros((int(self._delay.max()) + 1, 2, series, len(CONTRASTS)))
        """Squares and fourth powers of the last blocks, which do not count yet."""
        self._arrived = np.zeros((len(self._pending), len(CONTRASTS)))
        self._at = 0
        self._totals = np.zeros((2, series, len(CONTRASTS)))
        self._soon = np.zeros((series, len(CONTRASTS)))
        self._judged = np.zeros(len(CONTRASTS))
        self._columns = columns

    def freedom(self) -> Floats:
        """[K] Degrees of freedom; none for filters without a baseline, as there is nothing to compare a level with."""
        freedom: Floats = INDEPENDENT * self._judged * BLOCK / SUPPORT_OF * max(self._columns - 1, 1)
        return np.where(WITH_BASELINE[FILTER_OF], freedom, 0.0)

    def _usual(self) -> tuple[Floats, Floats]:
        looks = np.maximum(self._judged, 1)
        return self._totals[0] / looks, self._totals[1] / looks

    def variance(self, _contrasts: Float32s, floor: float) -> Floats:
        """[P, K, R] -> [P, K, 1]. floor: smallest variance."""
        mean, fourth = self._usual()
        tails = np.sqrt(np.clip(fourth / np.maximum(mean, 1e-30) ** 2 / 3, 1, 4))
        return np.maximum(np.maximum(mean, self._soon) * tails, floor)[..., None]

    def learn(self, contrasts: Float32s, slow: Bools, ready: Bools) -> None:
        """Add the squares of these contrasts. slow: [P, R] those whose signal stands. ready: [K] those judged."""
        mean = self._usual()[0][..., None]
        limit = np.where(slow[:, None], mean, LARGEST * mean)
        limit[:, self._judged == 0] = np.inf
        squares = np.minimum(np.square(contrasts), limit) * ready[:, None]
        self._pending[self._at] = squares.mean(axis=2), np.square(squares).mean(axis=2)
        self._arrived[self._at] = ready
        columns = np.arange(len(CONTRASTS))
        at = (self._at - self._delay) % len(self._pending)
        due, new = self._pending[at, :, :, columns].transpose(1, 2, 0), self._arrived[at, columns]
        self._totals = (1 - FORGET) * self._totals + due
        self._judged = (1 - FORGET) * self._judged + new
        rate = np.where(new > 0, np.maximum(1 / np.maximum(self._judged, 1), FORGET_SOON), 0.0)
        self._soon += rate * (due[0] - self._soon)
        self._at = (self._at + 1) % len(self._pending)
