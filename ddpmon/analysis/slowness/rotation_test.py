"""Detection of ranks that take turns at being slow: in most turns, one rank is far slower than all others.

Even by chance, every step has a slowest rank, and usually a different one each time. The distance from the slowest to
the second-slowest rank is therefore compared with the distance from the second to the third. With exponential tails,
the heaviest of usual noise, the first distance is distributed as twice the second (Sukhatme, 1937).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import log
from statistics import mean, median

import numpy as np

from ddpmon.analysis.slowness.slowdown import EVIDENCE
from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.statistics.excess import SMOOTHED, running_median
from ddpmon.analysis.threshold import Threshold

TURN_DISTANCE = Threshold(
    8.0,
    of="distance between the slowest and the second-slowest rank, divided by twice the usual distance between "
    "the second-slowest and the third-slowest",
    why="By chance, 0.4% of turns reach this value with exponential tails, and 15% with Pareto tails of exponent 1.5."
    " With skewed bursts, 20% of turns reach it (benchmarks/scenario_noises.py).",
)
CHANCE_TURN_SHARE = 1 / 4
"""Share of the turns in which one rank is far slower by chance; skewed bursts of noise reach this share for about 30
steps. The test's alternative is half-way between this share and all turns, so up to 43% of the turns are no
evidence."""
OF_TWO = Threshold(
    0.75,
    of="in a run of two ranks, the difference between their times, as a multiple of their usual difference",
    why="If small differences are the most frequent, at most 62.5% of turns reach this value by chance, in any "
    "kind of noise.",
)
CHANCE_OF_TWO = 2 / 3
"""Share of the turns in which one rank is far slower by chance, in a run of two ranks."""
USUAL_TURNS = 32
"""Number of latest turns whose median distance counts as usual. The median has an error of a quarter, and follows
growing noise."""


class TurnDetector:
    """Tests whether ranks take turns at being the slowest, in single steps and in stretches of three and more steps."""

    def __init__(self, ranks: int) -> None:
        self._own_ms: Floats = np.empty((0, ranks))
        self._numbers: Ints = np.empty(0, np.int64)
        # For two ranks, test own times without subtracting levels: a rank that is slow in half of the steps has a high
        # level.
        self._tests = (
            [_Test(TURN_DISTANCE.enter, CHANCE_TURN_SHARE) for _ in "12"]
            if ranks > 2
            else [_Test(OF_TWO.enter, CHANCE_OF_TWO)]
        )

    def add_block(self, own_ms: Floats, numbers: Ints) -> None:
        """Add steps.

        Args:
            own_ms: [S, R] Own times.
            numbers: [S] Numbers of the steps.

        """
        own = np.concatenate((self._own_ms, own_ms))
        numbers = np.concatenate((self._numbers, numbers))
        self._own_ms, self._numbers = own[-SMOOTHED:], numbers[-SMOOTHED:]
        if len(own) <= SMOOTHED:
            return
        middle = slice(SMOOTHED // 2, -SMOOTHED // 2)
        level = running_median(own)
        series = (own[middle] - level, level) if len(self._tests) > 1 else (own[middle],)
        for test, values in zip(self._tests, series, strict=True):
            test.add(values, numbers[middle])

    @property
    def current_turns(self) -> Turns | None:
        """Return the turns if they continue; None if ranks do not take turns."""
        return next((test.found for test in self._tests if test.found is not None), None)


@dataclass(frozen=True)
class Turns:
    """Turns of ranks that are far slower than all others, one after another."""

    since: int
    """The first step of the turns; 0 if they began with the run."""
    until: int
    """The last step of the latest turn."""
    turn_steps: float
    """Mean length of a turn, in steps."""


class _Test:
    """A sequential probability ratio test (Wald, 1945) for the beginning of turns, and then for their end."""

    def __init__(self, apart: float, chance: float) -> None:
        """Start a test that has found no turns yet.

        Args:
            apart: Minimum time between the slowest and the second-slowest rank, as a multiple of the usual time.
            chance: Share of the turns that reach this time by chance.

        """
        self.found: Turns | None = None
        self._factor, self._rise, self._fall = apart, log((1 + chance) / 2 / chance), log(0.5)
        self._slowest, self._first, self._last = -1, 0, 0
        """The slowest rank, and the first and last step of the present turn."""
        self._leads: list[float] = []
        self._gaps: list[float] = []
        self._usual: deque[float] = deque(maxlen=USUAL_TURNS)
        self._sum = 0.0
        """Log likelihood ratio: at least 0 before turns are found (evidence for turns), at most 0 afterwards (evidence
        against)."""
        self._begun: int | None = 0
        """First step of the turns in `_sum`; 0: all turns so far; None: no turn yet."""
        self._lengths: list[int] = []
        """Lengths in steps of the turns in `_sum` that reached the distance."""
        self._apart = -1
        """The rank of the latest turn that reached the distance. If the same rank reaches it again, this proves no
        rotation."""

    def add(self, values: Floats, numbers: Ints) -> None:
        """Add steps.

        Args:
            values: [S, R] Times.
            numbers: [S] Numbers of the steps.

        """
        slowest = values.argmax(axis=1).tolist()
        top = np.partition(values, range(-min(3, values.shape[1]), 0), axis=1)[:, -3:]
        leads = (top[:, -1] - top[:, -2]).tolist()
        gaps = (2 * (top[:, -2] - top[:, -3])).tolist() if values.shape[1] > 2 else leads
        for rank, lead, gap, number in zip(slowest, leads, gaps, numbers.tolist(), strict=True):
            if rank != self._slowest:
                if self._leads:
                    self._end_turn()
                self._slowest, self._first, self._leads, self._gaps = rank, number, [], []
            self._last = number
            self._leads.append(lead)
            self._gaps.append(gap)

    def _end_turn(self) -> None:
        self._usual.append(median(self._gaps))
        is_apart = median(self._leads) > self._factor * median(self._usual)
        if is_apart and self._slowest == self._apart:
            return
        self._sum += self._rise if is_apart else self._fall
        if is_apart:
            self._apart = self._slowest
            self._lengths = [*self._lengths[1 - USUAL_TURNS :], len(self._leads)]
        if self.found is None:
            self._begun = self._first if self._begun is None else self._begun
            if self._sum <= 0:
                self._sum, self._begun, self._lengths = 0.0, None, []
            elif self._sum >= EVIDENCE:
                self.found, self._sum = Turns(self._begun, self._last, mean(self._lengths)), 0.0
        elif self._sum >= 0:
            self.found, self._sum = replace(self.found, until=self._last, turn_steps=mean(self._lengths)), 0.0
        elif -self._sum >= EVIDENCE:
            self.found, self._begun, self._sum = None, None, 0.0
