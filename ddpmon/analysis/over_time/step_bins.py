"""Sums of every rank over bins of steps: a ring of the latest, or all of a run in bins that grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.statistics.excess import over_peers
from ddpmon.messages import PHASES

Values = NDArray[np.float32]

SUMMED = ("own", *PHASES, "loss")
"""Columns of the sums: ms of own time and of each phase, and the losses."""
MS = slice(SUMMED.index(PHASES[0]), SUMMED.index(PHASES[-1]) + 1)
"""The columns of the phases."""


@dataclass(frozen=True)
class Part:
    """Sums over some neighbouring steps each."""

    step: Ints
    """The first of them."""
    end_us: Ints
    """The end of the last of them."""
    sums: Values
    """[N, R, SUMMED]"""
    count: Ints
    losses: NDArray[np.int32]
    """[N, R] Number of losses in the sums."""

    def binned(self, steps: int) -> Part:
        """Add up the parts of each bin of so many steps."""
        bins = self.step // steps
        begins = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
        if len(begins) == len(bins):
            return self
        parts = (self.sums, self.count, self.losses)
        ends = np.append(begins[1:], len(bins)) - 1
        return Part(self.step[begins], self.end_us[ends], *(np.add.reduceat(each, begins, axis=0) for each in parts))


class StepBins:
    """The last BINS bins of one resolution, as a ring."""

    def __init__(self, steps: int, ranks: int) -> None:
        self.steps = steps
        self.number: Ints = np.full(BINS, -1, np.int64)
        """Number of the bin in each slot."""
        self.end_us: Ints = np.zeros(BINS, np.int64)
        self.sums = np.zeros((BINS, ranks, len(SUMMED)), np.float32)
        self.count: Ints = np.zeros(BINS, np.int64)
        self.losses = np.zeros((BINS, ranks), np.int32)
        self.idle: NDArray[np.float32] | None = None
        """Sums of the samples that overlap a bin; None: no GPU was sampled."""
        self.samples = np.zeros((0, ranks), np.int32)

    @property
    def _added_up(self) -> list[NDArray[Any]]:
        """The arrays of sums."""
        sampled = [] if self.idle is None else [self.idle, self.samples]
        return [self.sums, self.count, self.losses, *sampled]

    def append(self, part: Part) -> Part:
        """Add steps, or bins of a finer level; return what was added as bins of this one."""
        part = part.binned(self.steps)
        bins = part.step // self.steps
        kept = slice(int(np.searchsorted(bins, bins[-1] - BINS, side="right")), None)
        slots = bins[kept] % BINS
        stale = slots[self.number[slots] != bins[kept]]
        for array in self._added_up:
            array[stale] = 0
        self.number[slots], self.end_us[slots] = bins[kept], part.end_us[kept]
        self.sums[slots] += part.sums[kept]
        self.count[slots] += part.count[kept]
        self.losses[slots] += part.losses[kept]
        return part

    def reach(self, step: int) -> None:
        """Double the steps of a bin until those from the first step up to this one fit: no bin is forgotten."""
        while step // self.steps >= BINS:
            self.steps *= 2
            half = BINS // 2
            for array in self._added_up:
                array[:half] = array[::2] + array[1::2]
                array[half:] = 0
            self.end_us[:half] = np.maximum(self.end_us[::2], self.end_us[1::2])
            self.end_us[half:] = 0
            number = np.maximum(self.number[::2], self.number[1::2]) // 2  # An empty slot stays -1.
            self.number[:half], self.number[half:] = number, -1

    def overlay(self, step: Ints, idle: NDArray[np.float32], samples: NDArray[np.int32]) -> None:
        """Add samples that were laid over steps, as far as the bins of those are kept."""
        if self.idle is None:
            self.idle = np.zeros(self.sums.shape[:2], np.float32)
            self.samples = np.zeros(self.sums.shape[:2], np.int32)
        bins = step // self.steps
        begins = np.flatnonzero(np.diff(bins, prepend=-1))
        kept = self.number[bins[begins] % BINS] == bins[begins]
        slots = bins[begins][kept] % BINS
        self.idle[slots] += np.add.reduceat(idle, begins, axis=0)[kept]
        self.samples[slots] += np.add.reduceat(samples, begins, axis=0)[kept]


@dataclass(frozen=True)
class Bins:
    """Neighbouring bins of a level, of which so many count as one."""

    level: StepBins
    merged: int
    numbers: Ints
    """[B]"""
    slots: Ints
    """[B, merged] Their slots in the level."""
    present: Bools
    """[B, merged] True where the level still has them."""

    @classmethod
    def of(cls, level: StepBins, merged: int, numbers: Ints) -> Bins:
        fine = numbers[:, None] * merged + np.arange(merged)
        slots = fine % BINS
        return cls(level, merged, numbers, slots, level.number[slots] == fine)

    def together(self, longer: int) -> Bins:
        """Return the same steps in bins so many times as long."""
        numbers = np.arange(self.numbers[0] // longer, self.numbers[-1] // longer + 1)
        return Bins.of(self.level, self.merged * longer, numbers)

    @property
    def steps(self) -> int:
        """Steps of a bin."""
        return self.level.steps * self.merged

    @property
    def count(self) -> Ints:
        """[B] Number of steps in each bin."""
        counted: Ints = self._added_up(self.level.count)
        return counted

    @property
    def end_us(self) -> Ints:
        """[B] End of the last step of each bin; 0: it has none."""
        ends: Ints = np.where(self.present, self.level.end_us[self.slots], 0).max(axis=1)
        return ends

    def phases_ms(self, columns: slice | Ints = slice(None)) -> Floats:
        """[B, R, 7] Mean of each phase of the ranks in some columns; NaN where a bin has no step."""
        return _means(self._added_up(self.level.sums[:, columns, MS]), self.count[:, None, None])

    def loss(self, columns: slice | Ints = slice(None)) -> tuple[Floats, Bools]:
        """[B, R] Mean loss of the ranks in some columns, and where they have one."""
        losses = self._added_up(self.level.losses[:, columns])
        return _means(self._added_up(self.level.sums[:, columns, SUMMED.index("loss")]), losses), losses > 0

    def idle(self) -> tuple[Floats, Bools]:
        """[B, R] Share of the time in which each rank's GPU was idle, and where that was sampled."""
        if self.level.idle is None:
            nothing = np.zeros((len(self.numbers), self.level.sums.shape[1]))
            return nothing, nothing > 0
        samples = self._added_up(self.level.samples)
        return _means(self._added_up(self.level.idle), samples), samples > 0

    def over_others(self, metric: str) -> Floats:
        """Return how far means exceed those of the other ranks.

        Args:
            metric: "own" or one of its phases; or "step", which is compared with the usual step of the run.

        Returns:
            [B, R] share of the others' own time; [B, 1] for "step".

        """
        if metric == "step":
            step = np.median(self._ms("own") + self._ms("wait") + self._ms("transfer"), axis=1, keepdims=True)
            usual = np.broadcast_to(np.median(step[self.count > 0]), step.shape)
            over = step - usual
        else:
            own = self._ms("own")
            over_own = over_peers(own)
            usual = own - over_own
            over = over_own if metric == "own" else over_peers(self._ms(metric))
        share: Floats = np.divide(over, usual, out=np.zeros_like(over), where=usual > 0)
        return share

    def _ms(self, metric: str) -> Floats:
        """[B, R] Mean of one of SUMMED; 0 where a bin has no step."""
        counts = np.maximum(self.count, 1).astype(np.float32)[:, None]
        means: Floats = self._added_up(self.level.sums[..., SUMMED.index(metric)]) / counts
        return means

    def _added_up(self, array: NDArray[Any]) -> NDArray[Any]:
        """[B, ...] Sums of these bins; 0 where nothing is."""
        shown: NDArray[Any] = array[self.slots]
        shown[~self.present] = 0
        return shown[:, 0] if self.merged == 1 else shown.sum(axis=1)


def _means(sums: NDArray[Any], counts: NDArray[Any]) -> Floats:
    """NaN where nothing was counted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means: Floats = sums.astype(np.float64) / counts
    return means
