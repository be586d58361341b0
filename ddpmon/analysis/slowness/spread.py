"""The random spread of contrasts, measured on other ranks and earlier steps, and the noise of single steps."""

from __future__ import annotations

from functools import cache

import numpy as np

from ddpmon.analysis.slowness.matched_filters import BLOCKS_OF, CONTRASTS, Float32s, support_of, weights_of_contrasts
from ddpmon.analysis.slowness.series import BLOCK_STEPS
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.statistics.excess import sample_of

MEMORY = 25
"""Maximum number of earlier steps on which a contrast is assumed to depend, because of correlated noise."""
PAST_MEMORY = 5
"""MEMORY for the degrees of freedom of series of all ranks. In noise of 15%, a slowdown by 10% was found in 10 of 12
runs with PAST_MEMORY 5, and in none with 25. Without a fault, 320 runs of 1,500 steps in eight kinds of noise had no
signal."""
FORGET = BLOCK_STEPS / 20_000
"""Weight of the latest block in the measured spread, which covers about the last 20,000 steps."""
EARLY = 2.0
"""Weight of the latest of n blocks, as a multiple of 1/n. With 2, the weight of a noisy warm-up decreases as 1/n²."""
FORGET_SOON = BLOCK_STEPS / 500
"""Weight of the latest block in a second mean over the last 500 steps, which follows growing noise sooner."""
MAX_SQUARE_RATIO = 12.0
"""Multiple of the mean square at which squares are clipped, so that a fault does not enlarge the measured spread."""
INDEPENDENT = 1.3
"""Number of independent values in as many steps as a contrast depends on. Overlapping batches are worth up to 1.5 times
as many as batches side by side (Meketon and Schmeiser, Winter Simulation Conference 1984)."""
FEW_RANKS = 3
"""Maximum number of ranks for which the spread is not measured on other ranks, because two ranks always differ
equally."""


def z_of_t(t: Floats, freedom: Floats) -> Floats:
    """Convert t values to z values of the same probability (Wallace, Ann. Math. Stat. 30, 1959)."""
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    z: Floats = np.sign(t) * factor * np.sqrt(freedom * np.log1p(t * t / freedom))
    return z


def uncertain(freedom: Floats, z: Floats) -> Floats:
    """Return the factor for a variance that makes a z value as rare as a t value with `freedom` degrees of freedom.

    The function inverts the approximation in `z_of_t`.
    """
    some = np.maximum(freedom, 1e-3)
    factor: Floats = some * np.expm1(np.minimum(z**2 / some, 50.0)) / z**2
    return factor


def mean_correlation(products: Floats | Ints, memory: float) -> float:
    """Return the variance of a weighted sum of correlated steps, as a share of its value for perfect correlation.

    Args:
        products: [S] Sums of products of weights that are 0, 1, 2, … steps apart. For a mean, S, S - 1, S - 2, ….
        memory: Number of steps in which the correlation of the noise falls to 1/e.

    """
    first = float(products[0])
    return (2 * float(products @ np.exp(-np.arange(len(products)) / memory)) - first) / (len(products) * first)


def mean_of_others(values: Floats | Float32s, *, each: bool) -> Floats:
    """Return the mean over the other ranks for each rank, [..., R]; if not `each`, the mean over all, [..., 1]."""
    total: Floats = values.sum(axis=-1, keepdims=True)
    count = values.shape[-1]
    mean: Floats = (total - values) / (count - 1) if each else total / count
    return mean


def _tails(squares: Floats, fourth: Floats) -> Floats:
    """Return the factor by which heavy tails enlarge a variance, from mean squares and mean fourth powers."""
    tails: Floats = np.sqrt(np.clip(fourth / np.maximum(squares, 1e-30) ** 2 / 3, 1, 4))
    return tails


class _Memory:
    """Weights of the running mean of each contrast: nearly equal at first, exponential after 40,000 steps."""

    def __init__(self, support: Floats) -> None:
        self._support = support
        self.looks: Floats = np.zeros(len(CONTRASTS))
        """[K] Number of values that were added to each mean so far."""
        self._sum_of_squares = np.ones(len(CONTRASTS))

    def rates(self, added: Bools) -> Floats:
        """Count a value for the contrasts where `added` is true, and return its weight in their means, [K]."""
        self.looks = self.looks + added
        rates = np.where(added, np.clip(EARLY / (self.looks + 1), FORGET * BLOCKS_OF, 1.0), 0.0)
        self._sum_of_squares = (1 - rates) ** 2 * self._sum_of_squares + rates**2
        return rates

    def squares(self, contrasts: Float32s, usual: Floats | Float32s, slow: Bools) -> Floats | Float32s:
        """Return the squares of contrasts, clipped so that a fault adds little to their mean.

        Args:
            contrasts: [P, K, R] Contrasts of a block.
            usual: [P, K, 1] Mean square of the contrasts.
            slow: [P, R] True for ranks with a signal.

        """
        limit = np.where(slow[:, None], usual, MAX_SQUARE_RATIO * usual)
        limit[:, self.looks[: contrasts.shape[1]] == 0] = np.inf
        squares: Floats | Float32s = np.minimum(np.square(contrasts), limit)
        return squares

    def independent(self) -> Floats:
        """Return the independent values in each mean, [K]: Kish's effective number, less for overlapping contrasts."""
        looks = np.where(self.looks > 0, 1 / self._sum_of_squares, 0.0)
        values: Floats = INDEPENDENT * looks * np.minimum(BLOCKS_OF * BLOCK_STEPS / self._support, 1.0)
        return values


class PeerSpread:
    """The spread of a rank's contrasts, measured on the contrasts of the other ranks so far.

    The only assumption about the noise is that it is similar on all ranks without a fault.
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._sample = sample_of(ranks)
        count = len(range(ranks)[self._sample])
        self._squares: Float32s = np.zeros((series, len(CONTRASTS), count), np.float32)
        self._fourth = np.zeros((series, len(CONTRASTS)))
        self._memory = _Memory(support_of(MEMORY))

    def freedom(self) -> Floats:
        """Return the degrees of freedom of each contrast's spread, [K]."""
        peers = self._squares.shape[2] - 2
        return np.where(self._memory.looks > 0, peers * (1 + self._memory.independent()), 0.0)

    def measure(self, contrasts: Float32s, floor: float) -> tuple[Float32s, Floats, Floats]:
        """Return the contrasts minus their median over ranks, their variance, and a factor for their heavy tails.

        Contrasts are already relative to the median of the other ranks. If nearly half of the ranks are slow, that
        median shifts the contrasts of all other ranks equally; subtracting their median removes this shift.

        Args:
            contrasts: [P, K, R] Contrasts of a block.
            floor: Smallest variance.

        Returns:
            [P, K, R] contrasts; their variance, [P, K, R], or [P, K, 1] if it is measured on a sample of ranks; and [P,
            K] the factor for heavy tails, which the variance already includes.

        """
        ordered = np.sort(contrasts[..., self._sample], axis=2)
        count, ranks = ordered.shape[1:]
        middle = (ordered[..., ranks // 2] + ordered[..., (ranks - 1) // 2]) / 2
        squares, fourth = self._squares[:, :count], self._fourth[:, :count]
        tails = _tails(squares.mean(axis=2, dtype=float), fourth)
        measured: Floats = np.maximum(mean_of_others(squares, each=self._sample.step == 1) * tails[..., None], floor)
        return contrasts - middle[..., None].astype(np.float32), measured, tails

    def learn(self, contrasts: Float32s, slow: Bools, ready: Bools) -> None:
        """Learn from the squares of these contrasts.

        Args:
            contrasts: [P, K, R] Contrasts of a block.
            slow: [P, R] True for ranks with a signal.
            ready: [K] True for contrasts that were tested.

        """
        count = contrasts.shape[1]
        usual = self._squares[:, :count].mean(axis=2, keepdims=True)
        squares = self._memory.squares(contrasts[..., self._sample], usual, slow[:, self._sample])
        rates = self._memory.rates(ready)[:count].astype(np.float32)
        self._squares[:, :count] += rates[:, None] * (squares - self._squares[:, :count])
        self._fourth[:, :count] += rates * (np.square(squares).mean(axis=2) - self._fourth[:, :count])


class PastSpread:
    """The spread of contrasts, measured on steps before those on which the present contrasts depend.

    This spread is used for two or three ranks, and for series of all ranks together, which have no peers.
    """

    def __init__(self, series: int, columns: int) -> None:
        self._delay: Ints = np.ceil(support_of(MEMORY) / BLOCK_STEPS).astype(int)
        self._waiting = np.zeros((int(self._delay.max()) + 1, 2, series, len(CONTRASTS)))
        """Ring buffer of mean squares and fourth powers of the latest blocks, which are not in the means yet."""
        self._ready: Bools = np.zeros((len(self._waiting), len(CONTRASTS)), bool)
        self._at = 0
        self._means = np.zeros((2, series, len(CONTRASTS)))
        self._soon = np.zeros((series, len(CONTRASTS)))
        self._memory = _Memory(support_of(PAST_MEMORY))
        self._others = max(columns - 1, 1)

    def freedom(self) -> Floats:
        """Return the degrees of freedom of each contrast's spread, [K]."""
        return self._others * self._memory.independent()

    def measure(self, contrasts: Float32s, floor: float) -> tuple[Float32s, Floats, Floats]:
        """Return the contrasts [P, K, R], their variance [P, K, 1] and tails [P, K] as `PeerSpread.measure` does."""
        count = contrasts.shape[1]
        mean, fourth = self._means[:, :, :count]
        tails = _tails(mean, fourth)
        variance: Floats = np.maximum(np.maximum(mean, self._soon[:, :count]) * tails, floor)[..., None]
        return contrasts, variance, tails

    def learn(self, contrasts: Float32s, slow: Bools, ready: Bools) -> None:
        """Learn from the squares of these contrasts; the arguments are those of `PeerSpread.learn`."""
        count = contrasts.shape[1]
        squares = self._memory.squares(contrasts, self._means[0, :, :count, None], slow)
        self._waiting[self._at, :, :, :count] = squares.mean(axis=2), np.square(squares).mean(axis=2)
        self._ready[self._at] = ready
        columns = np.arange(len(CONTRASTS))
        at = (self._at - self._delay) % len(self._waiting)
        due, added = self._waiting[at, :, :, columns].transpose(1, 2, 0), self._ready[at, columns]
        rates = self._memory.rates(added)
        self._means += rates * (due - self._means)
        self._soon += added * np.maximum(rates, FORGET_SOON) * (due[0] - self._soon)
        self._at = (self._at + 1) % len(self._waiting)


UNSEEN_STEP_ERRORS = 2.0
"""Standard errors that are added to the estimate of wandering (slowly varying) noise."""
NOW_RATE = 0.5
"""Weight of the latest block in the current noise. With this large weight, noise that begins in all ranks counts at
once; one rank that becomes slow adds only one large difference between neighbouring steps."""
DELAY, DELAY_OF_FEW = 10 // BLOCK_STEPS, 40 // BLOCK_STEPS
"""Number of blocks before a block counts in the estimate of wandering noise, so that a rank that becomes slow has a
signal before its slowness counts as noise. With few ranks, detection
takes longer, so the delay is longer too."""
MEMORIES = (2, 5, 10, 20, 33, 66, 100, 300)
"""Correlation times of wandering noise that are tested: numbers of steps in which the correlation falls to 1/e."""


@cache
def noise_of_contrasts() -> tuple[Floats, Floats]:
    """Return the variance of each contrast for white noise of variance 1, and the largest variance for wandering noise,
    [K].

    Wandering noise is modelled as a sum of autoregressions, measured by the covariance of different steps of a block.
    The variance that it adds to a contrast, beyond that of white noise, is the maximum over MEMORIES.
    """
    weights = weights_of_contrasts()
    frequency = np.linspace(0, np.pi, weights.shape[1] + 1)
    power = np.abs(np.fft.rfft(weights, 2 * weights.shape[1], axis=1)) ** 2
    lags = np.arange(1, BLOCK_STEPS)
    pairs = (BLOCK_STEPS - lags) / (BLOCK_STEPS - lags).sum()
    white, most = power.mean(axis=1), np.zeros(len(weights))
    for memory in MEMORIES:
        keep = np.exp(-1 / memory)
        spectrum = (1 - keep**2) / (1 - 2 * keep * np.cos(frequency) + keep**2)
        added = (power * spectrum).mean(axis=1) - (1 - keep) * white
        most = np.maximum(most, added / (pairs * keep**lags).sum())
    return white, most


class StepNoise:
    """Splits the noise of steps into a white part and a wandering part.

    The variance of white noise is half the mean square of differences of neighbouring steps; a few dozen steps suffice.
    The variance of wandering noise is the mean product of different steps of a block, without the first MEMORY steps,
    because the baseline starts at the noise of that time. A lasting slowdown hardly affects these estimates: it
    changes only one difference, and the products of the slow rank. Each rank is tested with products of other ranks.
    """

    def __init__(self, series: int, ranks: int) -> None:
        self._sample = sample_of(ranks)
        self._each = self._sample.step == 1 and ranks > FEW_RANKS
        self._delay = DELAY if ranks > FEW_RANKS else DELAY_OF_FEW
        self._white = np.zeros((2, series, ranks))
        """[2, P, R] Variance of white noise: the mean over many steps, and the mean over the last 500."""
        self._now = np.zeros(series)
        """[P] The variance of white noise of all ranks in the latest blocks."""
        self._wandering = np.zeros((2, series, ranks if self._each else 1))
        """[2, P, R] or [2, P, 1] Mean, over blocks, of the product of the other ranks' steps, and of its square."""
        self._waiting: list[Floats] = []
        self._blocks = self._learned = 0

    def add_block(self, around: Floats) -> None:
        """Learn white noise from the values of a block minus the baseline: [P, BLOCK_STEPS, R]."""
        white = np.square(np.diff(around, axis=1)).mean(axis=1) / 2
        self._blocks += 1
        for memory, forget in enumerate((FORGET, FORGET_SOON)):
            self._white[memory] += min(max(EARLY / (self._blocks + 1), forget), 1.0) * (white - self._white[memory])
        self._now += NOW_RATE * (white[:, self._sample].mean(axis=1) - self._now)

    def learn_wandering(self, around: Floats, slow: Bools) -> None:
        """Learn wandering noise.

        Args:
            around: [P, BLOCK_STEPS, R] Values minus the baseline.
            slow: [P, R] True for ranks with a signal.

        """
        product = (np.square(around.sum(axis=1)) - np.square(around).sum(axis=1)) / (BLOCK_STEPS * (BLOCK_STEPS - 1))
        product = np.where(slow, np.minimum(product, self._wandering[0]), product)
        self._waiting.append(mean_of_others(product[:, self._sample], each=self._each))
        if len(self._waiting) > self._delay:
            product = self._waiting.pop(0)
            if self._blocks > self._delay + MEMORY // BLOCK_STEPS:
                self._learned += 1
                latest = np.stack((product, np.square(product)))
                self._wandering += max(1 / self._learned, FORGET) * (latest - self._wandering)

    def variance(self, most: Floats, tails: Floats) -> tuple[Floats, Floats]:
        """Return the variance of contrasts: that of white noise plus wandering noise, which has two upper bounds.

        The first bound is the measured variance minus that of white noise. The second follows from the correlation of
        the other ranks' steps plus UNSEEN_STEP_ERRORS standard errors. A rank with more white noise than others gets a
        proportionally larger variance.

        Args:
            most: [P, K, R] or [P, K, 1] The largest variance of contrasts that is consistent with their measurement.
            tails: [P, K] The factor by which heavy tails enlarge a variance.

        Returns:
            [P, K, R] or [P, K, 1] the variance for a typical rank; [P, R] the variance of each rank as a multiple of
            it.

        """
        count = most.shape[1]
        white, wandering = (each[:count, None] for each in noise_of_contrasts())
        usual = self._white[0][:, self._sample].mean(axis=1)[:, None]
        soon = self._white[1][:, self._sample].mean(axis=1)[:, None]
        now = np.maximum(np.maximum(usual, soon), self._now[:, None]) * tails
        rest = np.minimum(most - usual[..., None] * white, self._most_wandering(usual)[:, None] * wandering)
        others = mean_of_others(self._white[1][:, self._sample], each=self._each)
        noisier = np.clip(self._white[1] / np.maximum(others, 1e-30), 1.0, 25.0)
        return now[..., None] * white + np.maximum(rest, 0.0), noisier

    def _most_wandering(self, white: Floats) -> Floats:
        """Return the largest variance of wandering noise, given that of white noise: [P, 1] -> [P, R].

        The standard error is computed over blocks, not over ranks, because the noise of ranks may be correlated.
        """
        mean, square = self._wandering
        if self._learned < MEMORY // BLOCK_STEPS:
            return np.full_like(mean, np.inf)
        freedom = np.array(min(self._learned, 2 / FORGET) - 1)
        error = np.maximum(square - np.square(mean), 0.0) / freedom * uncertain(freedom, np.array(UNSEEN_STEP_ERRORS))
        error = UNSEEN_STEP_ERRORS * np.sqrt(error)
        mean = np.maximum(mean, 0.0)
        correlation = np.minimum((mean + error) / np.maximum(white + mean, 1e-30), 0.999)
        most: Floats = white * correlation / (1 - correlation)
        return most
