"""Series that show slowdowns: each rank's times relative to the other ranks, and the median times of all ranks."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.slowness.slowdown import WORTH
from ddpmon.analysis.statistics.arrays import SIGMAS_PER_MAD, Floats, column_medians, lower_medians, row_medians
from ddpmon.analysis.statistics.excess import over_peers, sample_of
from ddpmon.messages import OWN_PHASES

BLOCK_STEPS = 5
"""Number of steps that are tested together. This saves CPU time, and delays detection by at most 4 steps."""
CLIP_SIGMAS = 4.0
"""Distance from the baseline, in robust standard deviations, at which an excess is clipped. In 8 hours with noise of
all tested kinds, clipping at 6 gave one false signal (in Pareto noise), and clipping at 4 gave none. Clipping at 4
affects 0.006% of normally distributed values."""
RANKS_WITH_PHASES = 2048
"""Maximum number of ranks for which phases are tested too. With more ranks, these tests take long, and own time
suffices."""
MIN_CHANGE_SHARE = (WORTH.enter - 1) / 4
"""Minimum size, as a share of a step, of a change or of a lasting difference between ranks. After enough steps, a
smaller difference can be found between any two ranks."""
LEAST_CLIP = 1.5
"""The minimum clip limit, as a multiple of MIN_CHANGE_SHARE: the mean of four steps exceeds MIN_CHANGE_SHARE if three
steps reach the limit, and does not if only two reach it."""
MIN_SPREAD_SHARE = 5e-4
"""Minimum spread of the noise, as a share of a step: even in runs that only sleep, clocks and schedulers cause this
much."""
SCALE_RATE = BLOCK_STEPS / 1000
"""Weight of the latest block in the scale of the noise: it follows a new level of noise within about 1,000 steps."""
PEER_SERIES = ("own", *OWN_PHASES)
PAST_SERIES = ("own", *OWN_PHASES, "transfer")


class PeerSeries:
    """Compares own time and phases of each rank with the median of the other ranks in the same step."""

    def __init__(self, ranks: int) -> None:
        self.names = PEER_SERIES if ranks <= RANKS_WITH_PHASES else PEER_SERIES[:1]
        self.phase_share = np.zeros(len(OWN_PHASES))
        """Share of each phase in the own time of a typical rank."""
        self._blocks = 0

    def of_block(self, own_ms: Floats, phases_ms: Floats) -> Floats:
        """Return the excess over the other ranks.

        From each phase, its usual share of the rank's own time is subtracted. This removes noise that scales all phases
        of a rank alike, and keeps most of a delay in a single phase.

        Args:
            own_ms: [S, R] Own times.
            phases_ms: [S, R, 5] Times in each phase.

        Returns:
            [P, S, R] in ms, in the order of `names`.

        """
        if len(self.names) == 1:
            return over_peers(own_ms)[None]
        sample = sample_of(own_ms.shape[1])
        shares = column_medians(row_medians(phases_ms[:, sample] / np.maximum(own_ms[:, sample, None], 1e-9)))
        self._blocks += 1
        self.phase_share += max(1 / self._blocks, SCALE_RATE) * (shares - self.phase_share)
        values = np.empty((len(PEER_SERIES), *own_ms.shape))
        values[0] = own_ms
        values[1:] = np.moveaxis(phases_ms - self.phase_share * own_ms[..., None], -1, 0)
        return over_peers(values.reshape(-1, own_ms.shape[1])).reshape(values.shape)


class PastSeries:
    """Reduces each phase and the transfer to the median over ranks, corrected to the usual amount of work per step."""

    PRIOR_SHARE = 0.02
    """Relative variation of the work below which time is assumed to be proportional to work, because no slope can be
    measured."""
    RATE = BLOCK_STEPS / 10_000
    """Weight of the latest block: the slope is learned from the last 10,000 steps."""

    def __init__(self) -> None:
        self._blocks = 0
        self._work_mean = 0.0
        self._work_variance = 0.0
        self._time_mean = np.zeros(len(PAST_SERIES))
        self._covariance = np.zeros(len(PAST_SERIES))

    def of_block(self, phases_ms: Floats, transfer_ms: Floats, work: Floats) -> Floats:
        """Return median times over ranks, each corrected for more or less work than usual.

        The additional time for more work is estimated by ridge regression on earlier blocks. The prior is that time is
        proportional to work. So the first change of work explains as much of a change of time as possible.

        Args:
            phases_ms: [S, R, 5] Times in each phase.
            transfer_ms: [S, R] Transfer times.
            work: [S] Tokens or samples of a step; 0 where they are unknown.

        Returns:
            [7, S, 1] in ms, in the order of PAST_SERIES.

        """
        times = np.empty((len(PAST_SERIES), len(phases_ms)))
        # Of two ranks, the lower median is the faster one, so that one slow rank does not change it.
        times[0] = lower_medians(phases_ms.sum(axis=2))
        times[1:-1] = lower_medians(phases_ms).T
        times[-1] = lower_medians(transfer_ms)
        if not (work > 0).all():
            return times[..., None]
        if not self._blocks:
            self._work_mean, self._time_mean = float(work.mean()), times.mean(axis=1)
        prior = (self.PRIOR_SHARE * self._work_mean) ** 2
        proportional = self._time_mean / self._work_mean
        slope = (self._covariance + prior * proportional) / (self._work_variance + prior)
        slope = np.clip(slope, 0.0, proportional)
        slope[-1] = 0.0  # The size of the gradients does not depend on the input.
        more = work - self._work_mean
        corrected = times - slope[:, None] * more
        self._blocks += 1
        rate = max(1 / (self._blocks + 1), self.RATE)
        self._work_variance += rate * (float((more**2).mean()) - self._work_variance)
        self._covariance += rate * (((times - self._time_mean[:, None]) * more).mean(axis=1) - self._covariance)
        # Do not update the mean of the work, because a moving reference would shift the corrected times.
        self._time_mean += rate * (corrected.mean(axis=1) - self._time_mean)
        return corrected[..., None]


class Clip:
    """Clips values that differ from the baseline by more than some robust standard deviations."""

    def __init__(self) -> None:
        self._log_scale: Floats | None = None
        self.scale: Floats = np.zeros(0)
        """[P] Robust standard deviation of a step."""
        self._blocks = 0

    def __call__(self, excess: Floats, baseline: Floats, step_ms: float) -> Floats:
        """Return a clipped block.

        Args:
            excess: [P, S, R] Values of the block.
            baseline: [P, R] Level around which values are clipped.
            step_ms: Typical length of a step.

        """
        sample = sample_of(excess.shape[2])
        around = excess - baseline[:, None]
        spread = SIGMAS_PER_MAD * row_medians(np.abs(around[..., sample]).reshape(len(excess), -1))
        log_scale = np.log(np.maximum(spread, MIN_SPREAD_SHARE * step_ms))
        self._blocks += 1
        # Average logarithms: a warm-up block with 100 times the noise must not hide changes in the next 100 blocks.
        if self._log_scale is None:
            self._log_scale = log_scale
        self._log_scale += max(1 / self._blocks, SCALE_RATE) * (log_scale - self._log_scale)
        self.scale = np.exp(self._log_scale)
        least = LEAST_CLIP * MIN_CHANGE_SHARE * step_ms
        limit = np.maximum(CLIP_SIGMAS * self.scale, least)[:, None, None]
        clipped: Floats = baseline[:, None] + np.clip(around, -limit, limit)
        return clipped
