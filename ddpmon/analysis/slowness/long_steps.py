"""Detection of ranks that are slow only in some steps, by a betting test: bets on which rank has the next long step."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.slowness.series import BLOCK_STEPS, CLIP_SIGMAS
from ddpmon.analysis.slowness.slowdown import WORTH
from ddpmon.analysis.statistics.arrays import (
    SIGMAS_PER_MAD,
    Bools,
    Floats,
    Ints,
    column_medians,
    row_medians,
    series_median,
)
from ddpmon.analysis.statistics.excess import over_peers, sample_of
from ddpmon.analysis.threshold import Threshold

LONG_STEP = 8 * (WORTH.enter - 1)
"""Minimum excess of a long step over the rank's recent steps and the other ranks, as a share of a step. With this
excess, one long step in eight costs just enough to be reported."""
FAIR_SHARE = Threshold(
    1.5,
    of="number of long steps of a rank, as a multiple of the mean over all ranks, at which ddpmon suspects the rank",
    why="A judgement call: one rank may have 1.5 times as many long steps as another by chance, or because it runs "
    "near the disk or the network card.",
)
BETS = np.tile([0.25, 0.5, 0.8, 0.95], 2)[:, None]
"""Shares of the capital that are bet. The average over several shares wins nearly as much as the best share."""
ON_RHYTHM = np.repeat([False, True], 4)[:, None]
"""True for bets that also bet on a rhythm: equal distances between long steps."""
LEVEL_BLOCKS, FEWEST_BLOCKS = 60 // BLOCK_STEPS, 20 // BLOCK_STEPS
"""Number of latest blocks whose median is a rank's recent own time, and minimum number of blocks for this median."""
SIGMA_RATE = BLOCK_STEPS / 300
"""Weight of the latest block in the spread of the noise."""
CLUSTER_BLOCKS = 80 // BLOCK_STEPS
"""Number of blocks over which long steps are counted, to measure how much they cluster in one rank."""
CLUSTER_RATE = 0.03
"""Weight of the latest count in the measured clustering: it covers about the last 2,700 steps."""


class LongSteps:
    """Sums of bets that started at each block (an e-detector: Shin, Ramdas and Rinaldo, NEJSDS 2023).

    An event is the first of consecutive long steps of a rank. A bet on rank r stakes the share `b` of its capital. If
    the next event is on rank r, the capital is multiplied by 1 + b (1 / q - 1), else by 1 - b, where q is 1.5 times a
    fair share. As long as no rank has more than 1.5 times its fair share of events, the mean time until the sum
    exceeds N is at least N blocks. Events that cluster count less: the log capital is divided by their overdispersion.
    Half of the capital is also bet on a rhythm: that the distance from a rank's last event to its next one equals the
    distance before it.
    """

    def __init__(self, ranks: int) -> None:
        shape = (len(BETS), ranks)
        self._ranks = ranks
        self._log_sum = np.full(shape, -np.inf)
        self._log_rise = np.zeros(shape)
        """Log capital of each bet, minus its minimum so far. The events most likely became frequent at that minimum."""
        self._began: Ints = np.zeros(shape, np.int64)
        self._levels: list[Floats] = []
        self._sigma = 0.0
        self._was_long: Bools = np.zeros(ranks, bool)
        self._events: Ints = np.zeros(ranks, np.int64)
        self._last: Ints = np.zeros(ranks, np.int64)
        """Index of the step of each rank's last event."""
        self._due: Ints = np.full(ranks, -1)
        """Index of the step at which the next event is due, if the last two distances are equal; -1: no event is
        due."""
        self._dues: Ints = np.zeros(ranks, np.int64)
        """Number of steps so far at which an event was due."""
        self._kept: Ints = np.zeros(ranks, np.int64)
        """Number of times that an event occurred when it was due."""
        self._counts = np.zeros(ranks)
        self._looks = 0
        self._cluster = np.array([2.0, 2.0])
        """Sum of squared deviations of counts, and its expectation for a Poisson distribution; equal at first."""

    def add_block(self, own_ms: Floats, step_ms: float, step_index: int, enough: float) -> tuple[Bools, Floats, Ints]:
        """Count the long steps of a block, and return which ranks have too many.

        Args:
            own_ms: [S, R] Own times.
            step_ms: Typical length of a step.
            step_index: Index of the block's first step.
            enough: Log of the sum at which a rank has too many long steps.

        Returns:
            [R] True for ranks that have too many long steps and one in this block; [R] log of the sum; [R] index of the
            step at which long steps became frequent.

        """
        levels = self._levels
        levels.append(column_medians(own_ms))
        if len(levels) <= FEWEST_BLOCKS:
            nothing = np.zeros(self._ranks, bool)
            return nothing, np.full(self._ranks, -np.inf), self._began[0]
        level = row_medians(np.stack(levels[:-1], axis=1))
        del levels[:-LEVEL_BLOCKS]
        longer = over_peers(own_ms - level)
        spread = SIGMAS_PER_MAD * series_median(np.abs(longer[:, sample_of(self._ranks)]).ravel())
        self._sigma = spread if not self._sigma else self._sigma + SIGMA_RATE * (spread - self._sigma)
        is_long = longer > max(LONG_STEP * step_ms, CLIP_SIGMAS * self._sigma)
        begins = is_long & ~np.vstack((self._was_long, is_long[:-1]))
        self._was_long = is_long[-1]
        return self._bet(begins.sum(axis=0).astype(float), self._bet_on_rhythm(begins, step_index), step_index, enough)

    def _bet_on_rhythm(self, begins: Bools, step_index: int) -> Floats:
        """Return the log of the winnings from betting that events of a rank occur at equal distances, [bets, R].

        Without a rhythm, the probability of an event at a step where it is due is the rank's share of steps with an
        event, or the share of due events that occur on other ranks, whichever is larger.

        Args:
            begins: [S, R] True where an event occurs.
            step_index: Index of the first of these steps.

        """
        won = np.zeros((len(BETS), self._ranks))
        for number, events in enumerate(begins):
            step, seen = step_index + number, self._looks * BLOCK_STEPS + number + 1
            due = self._due == step
            if not (events | due).any():
                continue
            others_keep = (self._kept.sum() - self._kept) / np.maximum(self._dues.sum() - self._dues, 1)
            chance = FAIR_SHARE.enter * np.maximum((self._events + 1) / seen, others_keep)
            odds = np.maximum(1 / chance, 1.0)
            won += due * np.log1p(np.where(events, BETS * (odds - 1), -BETS))
            self._dues += due
            self._kept += due & events
            distance = step - self._last
            self._due = np.where(events, np.where(distance >= BLOCK_STEPS, step + distance, -1), self._due)
            self._last = np.where(events, step, self._last)
            self._events += events
        return won

    def _bet(self, events: Floats, rhythm: Floats, step_index: int, enough: float) -> tuple[Bools, Floats, Ints]:
        total = events.sum()
        odds = (self._ranks + 0.5) / FAIR_SHARE.enter
        of_ranks = events * np.log1p(BETS * (odds - 1)) + (total - events) * np.log1p(-BETS)
        won = of_ranks / self._clustering(events) + ON_RHYTHM * rhythm
        # The sum is capped, because a sum far above the limit would take long to fall below it again.
        self._log_sum = np.minimum(np.logaddexp(self._log_sum, 0.0) + won, enough + 8.0)
        self._log_rise += won
        self._began = np.where(self._log_rise <= 0, step_index + BLOCK_STEPS, self._began)
        # Long steps are not counted before the level is known, so an early beginning counts as the start of the run.
        self._began[self._began <= FEWEST_BLOCKS * BLOCK_STEPS + 30] = 0
        self._log_rise = np.minimum(np.maximum(self._log_rise, 0.0), enough + 8.0)
        top = self._log_sum.max(axis=0)
        log_sum: Floats = top + np.log(np.exp(self._log_sum - top).mean(axis=0))
        best = self._log_rise.argmax(axis=0)
        return (log_sum >= enough) & (events > 0), log_sum, self._began[best, np.arange(self._ranks)]

    def _clustering(self, events: Floats) -> float:
        """Return the variance of counts over that of independent events, without the rank with the most events."""
        self._counts += events
        self._looks += 1
        if self._looks % CLUSTER_BLOCKS == 0:
            counts = np.sort(self._counts)[:-1] if self._ranks > 2 else self._counts
            mean = counts.mean()
            expected = np.array([((counts - mean) ** 2).sum(), mean * (len(counts) - 1)])
            self._cluster = (1 - CLUSTER_RATE) * self._cluster + expected
            self._counts = np.zeros(self._ranks)
        return float(
            np.clip(self._cluster[0] + 2, self._cluster[1] + 2, 20 * (self._cluster[1] + 2)) / (self._cluster[1] + 2)
        )
