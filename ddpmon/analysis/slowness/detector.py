"""Detection, in a stream of steps, that a rank, or all ranks, became slower or faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.slowness.contrasts import ALL_RANKS_Z, CHANGE_Z, REFERENCE_RANKS, Contrasts, asked_z
from ddpmon.analysis.slowness.level_since_start import LevelSinceStart
from ddpmon.analysis.slowness.long_steps import LongSteps
from ddpmon.analysis.slowness.matched_filters import LONG, MEDIUM
from ddpmon.analysis.slowness.rotation_test import TurnDetector, Turns
from ddpmon.analysis.slowness.series import BLOCK_STEPS, PAST_SERIES, PastSeries, PeerSeries
from ddpmon.analysis.slowness.slowdown import CERTAIN_Z
from ddpmon.analysis.slowness.spread import FEW_RANKS
from ddpmon.analysis.statistics.arrays import Floats, Ints, row_medians, series_median
from ddpmon.analysis.steps.world import World

DAY_MS = 24 * 3600e3
"""Time in which one false signal is acceptable, in ms."""
STEP_RATE = BLOCK_STEPS / 1000
"""Weight of the latest block in the typical length of a step."""
HELD_STEPS = LONG[-1]
"""Number of steps for which a signal is still returned after it was last found: the length of the longest contrast."""
ALL_RANKS_STEPS = MEDIUM[1]
"""Minimum number of steps for which all ranks must be slower. A busy file system delays all ranks for a few steps."""
FIRST_NEW_LEVEL_STEP = 40
"""Number of steps after which a run of at most FEW_RANKS ranks starts a second mean (`LevelSinceStart`). Each further
mean starts after twice as many steps.

Two or three ranks are too few to measure slowly varying noise. If one of them becomes slow after a few dozen steps,
contrasts and the level since the start cannot distinguish this from such noise. A mean that starts later contains only
slow steps.
"""
WARM_UP_BLOCKS = 1
"""Number of blocks at the start of a run that are ignored: the first steps compile, allocate and fill caches."""

Evidence = Literal["change", "long_steps", "start", "turns"]
"""The test that found a signal. "change": the level of a series changed. "long_steps": the rank has too many single
long steps. "start": the mean since the start is too high. "turns": ranks are slow one after another."""


@dataclass(frozen=True)
class Signal:
    """A change that is too large to be chance."""

    rank: int | None
    """The rank; None: all ranks, compared with their own past."""
    series: str
    """"own" (own time), a phase, or "transfer". The usual share of the rank's own time is subtracted from each phase. A
    delay in one phase therefore appears as a decrease in the other phases."""
    step: int
    """Number of the first step of the change; its error is about the length of the contrast that found it."""
    up: bool
    """True if the rank, or all ranks, became slower; False if faster."""
    z: float
    """Largest z-score of the change so far."""
    evidence: Evidence
    found: int
    """Number of the step after which the signal was first found."""
    held: int
    """Number of the step after which the signal was last found."""
    turns: Turns | None = None
    """The turns, if the evidence is "turns"."""


def _judged_arrays(part: World) -> tuple[NDArray[Any], ...]:
    """Return the arrays that the detector tests.

    Returns:
        Step numbers [S], own times [S, R], phases [S, R, 5], transfer [S, R], the length of steps [S], and their work
        [S]: the tokens, or else the samples, of the median rank; 0 where neither is known.

    """
    counts = part.tokens if len(part) and (part.tokens > 0).all() else part.samples
    work = np.where((counts > 0).all(axis=1), row_medians(counts.astype(float)), 0.0)
    return part.step, part.own_ms, part.phases_ms, part.transfer_ms, part.step_ms, work


class Detector:
    """Finds changes in the steps of a fixed set of ranks. If the ranks change, use a new detector.

    Steps are tested in blocks of five, however many are appended at once. Memory is bounded: only the last 365 step
    numbers and statistics of fixed size are kept.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        count = len(self.ranks)
        self._waiting: tuple[NDArray[Any], ...] = ()
        self._judged = 0
        """Number of steps that were tested, including the warm-up."""
        self._first_number = 0
        self._numbers: Ints = np.zeros(0, np.int64)
        """Numbers of the latest steps."""
        self._step_ms = 0.0
        self._past_series = PastSeries()
        self._past = Contrasts(len(PAST_SERIES), 1, peers=False, asked_z=ALL_RANKS_Z.enter, shortest=ALL_RANKS_STEPS)
        self._beside = _Beside(count) if count > 1 else None
        self._signals: dict[tuple[str, int | None, str, bool], Signal] = {}

    def append(self, part: World) -> None:
        """Append further steps, any number of them.

        Raises:
            ValueError: The steps are of a different set of ranks.

        """
        if part.ranks != self.ranks:
            raise ValueError("a detector accepts only steps of the ranks for which it was created")
        arrays = _judged_arrays(part)
        if self._waiting:
            arrays = tuple(np.concatenate(pair) for pair in zip(self._waiting, arrays, strict=True))
        whole = len(arrays[0]) // BLOCK_STEPS * BLOCK_STEPS
        for first in range(0, whole, BLOCK_STEPS):
            self._judge(*(each[first : first + BLOCK_STEPS] for each in arrays))
        # Copy the steps, because a view would keep the whole array in memory.
        self._waiting = tuple(each[whole:].copy() for each in arrays)

    def recent_signals(self) -> list[Signal]:
        """Return the signals of the last 360 steps, in the order in which they were found.

        For each rank, series, direction and kind of evidence, only the latest signal is returned.
        """
        oldest = self._number(self._judged - HELD_STEPS)
        standing = [each for each in self._signals.values() if each.held >= oldest]
        return sorted(standing, key=lambda each: each.found)

    def _judge(
        self, step: Ints, own_ms: Floats, phases_ms: Floats, transfer_ms: Floats, length_ms: Floats, work: Floats
    ) -> None:
        blocks = self._judged // BLOCK_STEPS
        typical = series_median(length_ms)
        self._step_ms += max(1 / (blocks + 1), STEP_RATE) * (typical - self._step_ms)
        self._judged += BLOCK_STEPS
        if not blocks:
            self._first_number = int(step[0])
        self._numbers = np.concatenate((self._numbers, step))[-HELD_STEPS - BLOCK_STEPS :]
        if blocks < WARM_UP_BLOCKS:
            return
        step_ms = max(self._step_ms, 1e-6)
        past = self._past_series.of_block(phases_ms, transfer_ms, work)
        for hit in self._past.judge(past, step_ms):
            self._note(None, PAST_SERIES[hit.series], hit.size > 0, hit.z, "change", self._judged - hit.length)
        if self._beside:
            self._judge_beside(self._beside, step, own_ms, phases_ms, step_ms)

    def _judge_beside(self, beside: _Beside, step: Ints, own_ms: Floats, phases_ms: Floats, step_ms: float) -> None:
        excess = beside.series.of_block(own_ms, phases_ms)
        for hit in beside.contrasts.judge(excess, step_ms):
            rank, up = self.ranks[hit.column], hit.size > 0
            self._note(rank, beside.series.names[hit.series], up, hit.z, "change", self._judged - hit.length)
        for begin, level in beside.levels_since(self._judged - BLOCK_STEPS):
            z = level.add_block(beside.contrasts.latest, step_ms)
            if z is None:
                continue
            for series, column in zip(*np.nonzero(np.abs(z) >= beside.start_z), strict=True):
                rank, value = self.ranks[column], float(z[series, column])
                evidence: Evidence = "change" if begin else "start"
                self._note(rank, beside.series.names[series], value > 0, abs(value), evidence, begin)
        looks_a_day = DAY_MS / (BLOCK_STEPS * step_ms)
        enough = log(max(looks_a_day, 1.0) * len(self.ranks))
        first = self._judged - BLOCK_STEPS
        slow, log_sum, began = beside.long_steps.add_block(own_ms, step_ms, first, enough)
        for column in np.flatnonzero(slow):
            z_of_bet = sqrt(2 * float(log_sum[column]))
            self._note(self.ranks[column], "own", True, z_of_bet, "long_steps", int(began[column]))
        beside.turns.add_block(own_ms, step)
        self._note_turns(beside.turns)

    def _note_turns(self, turns: TurnDetector) -> None:
        """Add or remove the signal that ranks take turns at being slow."""
        now, z = int(self._numbers[-1]), CERTAIN_Z
        up, down = (("turns", None, "own", way) for way in (True, False))
        before, found = self._signals.pop(up, None), turns.current_turns
        if found is not None:
            since, first = max(found.since, self._first_number), now if before is None else before.found
            self._signals[up] = Signal(None, "own", since, True, z, "turns", first, now, found)
            self._signals.pop(down, None)
        elif before is not None:
            self._signals[down] = replace(before, up=False, found=now, held=now)

    def _note(self, rank: int | None, series: str, up: bool, z: float, evidence: Evidence, first: int) -> None:
        """Add a signal, or update the known signal of the same rank, series, direction and evidence.

        Args:
            rank: The rank; None: all ranks.
            series: Name of the series.
            up: True if the rank became slower.
            z: Strength of the signal.
            evidence: The test that found the signal.
            first: Index of the first step of the change.

        """
        now = int(self._numbers[-1])
        step = self._number(first)
        key = (evidence, rank, series, up)
        before, opposite = self._signals.get(key), self._signals.get((evidence, rank, series, not up))
        ended = before is None or before.held < self._number(self._judged - HELD_STEPS)
        turned = before is not None and opposite is not None and before.step < opposite.step < step
        if before is None or ended or turned:
            self._signals[key] = Signal(rank, series, step, up, z, evidence, now, now)
        else:
            # Not `dataclasses.replace`, which is slower: a rank that stays slow gets here in each block.
            self._signals[key] = Signal(rank, series, before.step, up, max(z, before.z), evidence, before.found, now)

    def _number(self, index: int) -> int:
        """Return the number of the step at an index. If it is no longer stored, assume that no step was lost."""
        kept = len(self._numbers)
        place = index - (self._judged - kept)
        if index <= 0 or not kept:
            return self._first_number
        return int(self._numbers[place]) if place >= 0 else max(int(self._numbers[0]) + place, self._first_number)


class _Beside:
    """State of all tests that compare ranks with each other."""

    def __init__(self, ranks: int) -> None:
        self.series = PeerSeries(ranks)
        series = len(self.series.names)
        self._shape = series, ranks
        self.contrasts = Contrasts(series, ranks, peers=True, asked_z=CHANGE_Z.enter)
        self._levels = [(0, LevelSinceStart(series, ranks))]
        self._new_level_at = FIRST_NEW_LEVEL_STEP if ranks <= FEW_RANKS else None
        self.start_z = float(asked_z(CHANGE_Z.enter, LONG[-1], max(1.0, ranks / REFERENCE_RANKS)))
        self.long_steps = LongSteps(ranks)
        self.turns = TurnDetector(ranks)

    def levels_since(self, steps: int) -> list[tuple[int, LevelSinceStart]]:
        """Return the means to which the next block must be added, each with the number of steps before it began.

        Args:
            steps: Number of steps before the block.

        """
        if self._new_level_at is not None and steps >= self._new_level_at:
            self._levels = [self._levels[0], *self._levels[1:][-1:], (steps, LevelSinceStart(*self._shape))]
            self._new_level_at = 2 * steps
        return self._levels
