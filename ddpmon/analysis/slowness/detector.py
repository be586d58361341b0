"""Detect in a stream of steps that a rank, or all ranks, became slower or faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from ddpmon.analysis.slowness.contrasts import ALL_RANKS_Z, CHANGE_Z, REFERENCE_RANKS, Contrasts, asked_z
from ddpmon.analysis.slowness.level_since_start import LevelSinceStart
from ddpmon.analysis.slowness.long_steps import LongSteps
from ddpmon.analysis.slowness.matched_filters import LONG, MEDIUM
from ddpmon.analysis.slowness.series import BLOCK, PAST_SERIES, PastSeries, PeerSeries
from ddpmon.analysis.slowness.signal import Evidence, Signal
from ddpmon.analysis.slowness.slowdown import EVIDENCE
from ddpmon.analysis.slowness.turns import TurnDetector
from ddpmon.analysis.statistics.arrays import Floats, Ints, median, medians
from ddpmon.analysis.steps.world import World

DAY_MS = 24 * 3600e3
"""Time in which one false signal is accepted."""
STEP_RATE = BLOCK / 1000
"""Weight of the latest block in the typical length of a step."""
HELD_STEPS = LONG[-1]
"""Steps for which a signal is returned after it was found last: no contrast is longer."""
ALL_RANKS_STEPS = MEDIUM[1]
"""Steps for which all ranks are slower at least: a pause of the file system takes some steps of all."""
WARM_UP_BLOCKS = 1
"""Blocks at the start of a run that are left out: the first steps compile, allocate and fill caches."""


@dataclass(frozen=True)
class _Rows:
    """What is judged of some steps."""

    step: Ints
    own_ms: Floats
    phases_ms: Floats
    transfer_ms: Floats
    length_ms: Floats
    """[S] Of the slowest rank."""
    work: Floats
    """[S] Tokens of the median rank, or samples; 0 where neither is known."""

    @classmethod
    def of(cls, part: World) -> _Rows:
        counts = part.tokens if len(part) and (part.tokens > 0).all() else part.samples
        work = np.where((counts > 0).all(axis=1), medians(counts.astype(float)), 0.0)
        return cls(part.step, part.own_ms, part.phases_ms, part.transfer_ms, part.step_ms, work)

    def between(self, first: int, end: int) -> _Rows:
        """Return some of the steps, by index. Views, no copies."""
        return _Rows(**{name: values[first:end] for name, values in vars(self).items()})

    def rest_from(self, first: int) -> _Rows:
        """Return copies of the steps from an index on, which do not keep the memory of those before."""
        return _Rows(**{name: values[first:].copy() for name, values in vars(self).items()})

    def followed_by(self, more: _Rows) -> _Rows:
        """Return these steps and further ones."""
        return _Rows(**{name: np.concatenate((values, vars(more)[name])) for name, values in vars(self).items()})


class Detector:
    """Finds changes in the steps of a set of ranks. A change of the ranks needs a new detector.

    Steps are judged in blocks of five, however the stream is cut. Memory is bounded: nothing is kept of single steps
    but the last 365.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        count = len(self.ranks)
        self._waiting: _Rows | None = None
        self._judged = 0
        """Steps judged, warm-up included."""
        self._first_number = 0
        self._numbers: Ints = np.zeros(0, np.int64)
        """Step numbers of the last ones."""
        self._step_ms = 0.0
        self._past_series = PastSeries()
        self._past = Contrasts(len(PAST_SERIES), 1, peers=False, asked_z=ALL_RANKS_Z.enter, shortest=ALL_RANKS_STEPS)
        self._beside = _Beside(count) if count > 1 else None
        self._signals: dict[tuple[str, int | None, str, bool], Signal] = {}

    def append(self, part: World) -> None:
        """Add further steps, any number of them.

        Raises:
            ValueError: The steps are of other ranks.

        """
        if part.ranks != self.ranks:
            raise ValueError("a detector accepts steps of the ranks it was made for only")
        rows = _Rows.of(part) if self._waiting is None else self._waiting.followed_by(_Rows.of(part))
        whole = len(rows.step) // BLOCK * BLOCK
        for first in range(0, whole, BLOCK):
            self._judge(rows.between(first, first + BLOCK))
        self._waiting = rows.rest_from(whole)

    def signals(self) -> list[Signal]:
        """Return the signals of the last 360 steps, in the order in which they were found.

        Of each rank, series, direction and kind of evidence the latest is returned.
        """
        oldest = self._number(self._judged - HELD_STEPS)
        standing = [each for each in self._signals.values() if each.held >= oldest]
        return sorted(standing, key=lambda each: each.found)

    def _judge(self, rows: _Rows) -> None:
        blocks = self._judged // BLOCK
        typical = median(rows.length_ms)
        self._step_ms += max(1 / (blocks + 1), STEP_RATE) * (typical - self._step_ms)
        self._judged += BLOCK
        if not blocks:
            self._first_number = int(rows.step[0])
        self._numbers = np.concatenate((self._numbers, rows.step))[-HELD_STEPS - BLOCK :]
        if blocks < WARM_UP_BLOCKS:
            return
        step_ms = max(self._step_ms, 1e-6)
        past = self._past_series.of_block(rows.phases_ms, rows.transfer_ms, rows.work)
        for hit in self._past.judge(past, step_ms):
            self._note(None, PAST_SERIES[hit.series], hit.size > 0, hit.z, "change", self._judged - hit.length)
        if self._beside:
            self._judge_beside(self._beside, rows, step_ms)

    def _judge_beside(self, beside: _Beside, rows: _Rows, step_ms: float) -> None:
        excess = beside.series.of_block(rows.own_ms, rows.phases_ms)
        for hit in beside.contrasts.judge(excess, step_ms):
            rank, up = self.ranks[hit.column], hit.size > 0
            self._note(rank, beside.series.names[hit.series], up, hit.z, "change", self._judged - hit.length)
        z = beside.start.add_block(beside.contrasts.latest, step_ms)
        if z is not None:
            for series, column in zip(*np.nonzero(np.abs(z) >= beside.start_z), strict=True):
                value = float(z[series, column])
                self._note(self.ranks[column], beside.series.names[series], value > 0, abs(value), "start", 0)
        looks_a_day = DAY_MS / (BLOCK * step_ms)
        enough = log(max(looks_a_day, 1.0) * len(self.ranks))
        first = self._judged - BLOCK
        slow, log_sum, began = beside.long_steps.add_block(rows.own_ms, step_ms, first, enough)
        for column in np.flatnonzero(slow):
            z_of_bet = sqrt(2 * float(log_sum[column]))
            self._note(self.ranks[column], "own", True, z_of_bet, "long_steps", int(began[column]))
        beside.turns.add_block(rows.own_ms, rows.step)
        self._note_turns(beside.turns)

    def _note_turns(self, turns: TurnDetector) -> None:
        """Add the signal that ranks take turns in being slow, or that they do no longer."""
        now, z = int(self._numbers[-1]), sqrt(2 * EVIDENCE.enter)
        up, down = (("turns", None, "own", way) for way in (True, False))
        before, found = self._signals.pop(up, None), turns.found
        if found is not None:
            since, first = max(found.since, self._first_number), now if before is None else before.found
            self._signals[up] = Signal(None, "own", since, True, z, "turns", first, now, found)
            self._signals.pop(down, None)
        elif before is not None:
            self._signals[down] = replace(before, up=False, found=now, held=now)

    def _note(
        self,
        rank: int | None,
        series: str,
        up: bool,
        z: float,
        evidence: Evidence,
        first: int,
    ) -> None:
        """Add a signal, or that one holds. first: index of the step with which it began."""
        now = int(self._numbers[-1])
        step = self._number(first)
        key = (evidence, rank, series, up)
        before, opposite = self._signals.get(key), self._signals.get((evidence, rank, series, not up))
        ended = before is None or before.held < self._number(self._judged - HELD_STEPS)
        turned = before is not None and opposite is not None and before.step < opposite.step < step
        if before is None or ended or turned:
            self._signals[key] = Signal(rank, series, step, up, z, evidence, now, now)
        else:
            self._signals[key] = replace(before, held=now, z=max(z, before.z))

    def _number(self, index: int) -> int:
        """Return the number of a step by its index; of one that is no longer kept, as if none had been lost since."""
        kept = len(self._numbers)
        place = index - (self._judged - kept)
        if index <= 0 or not kept:
            return self._first_number
        return int(self._numbers[place]) if place >= 0 else max(int(self._numbers[0]) + place, self._first_number)


class _Beside:
    """What compares ranks with each other."""

    def __init__(self, ranks: int) -> None:
        self.series = PeerSeries(ranks)
        series = len(self.series.names)
        self.contrasts = Contrasts(series, ranks, peers=True, asked_z=CHANGE_Z.enter)
        self.start = LevelSinceStart(series, ranks)
        self.start_z = float(asked_z(CHANGE_Z.enter, LONG[-1], max(1.0, ranks / REFERENCE_RANKS)))
        self.long_steps = LongSteps(ranks)
        self.turns = TurnDetector(ranks)
