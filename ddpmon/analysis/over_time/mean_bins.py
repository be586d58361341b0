"""Means of ranks over bins of steps or seconds: the latest bins in a ring buffer, or a whole run in bins that widen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints

Sums = NDArray[np.float32]
Counts = NDArray[np.uint32]


@dataclass(frozen=True)
class Part:
    """Sums of all ranks over groups of neighbouring steps."""

    step: Ints
    """[N] The first step of each group."""
    end_us: Ints
    """[N] The end of the last step of each group."""
    sums: Sums
    """[N, R, quantities] Sum of each quantity."""
    counts: Counts
    """[N, R, quantities] Number of values in each sum."""

    def binned(self, width: int) -> Part:
        """Return the sums over bins of `width` steps."""
        bins = self.step // width
        begins = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
        if len(begins) == len(bins):
            return self
        ends = np.append(begins[1:], len(bins))
        places = list(zip(begins.tolist(), ends.tolist(), strict=True))
        # With a thousand ranks, summing the rows of each bin separately is several times faster than `np.add.reduceat`.
        sums, counts = (
            np.stack([each[begin:end].sum(axis=0, dtype=each.dtype) for begin, end in places])
            for each in (self.sums, self.counts)
        )
        return Part(self.step[begins], self.end_us[ends - 1], sums, counts)


class MeanBins:
    """A ring buffer of the last BINS_PER_RESOLUTION bins of one resolution."""

    def __init__(self, width: int, ranks: int, quantities: Sequence[str]) -> None:
        """Start without values.

        Args:
            width: Number of steps or seconds in a bin.
            ranks: Number of ranks.
            quantities: Names of the quantities.

        """
        self.width = width
        self.quantities = tuple(quantities)
        self.number: Ints = np.full(BINS_PER_RESOLUTION, -1, np.int64)
        """Number of the bin in each slot; -1: the slot is empty."""
        self.end_us: Ints = np.zeros(BINS_PER_RESOLUTION, np.int64)
        self.sums: Sums = np.zeros((BINS_PER_RESOLUTION, ranks, len(quantities)), np.float32)
        self.counts: Counts = np.zeros(self.sums.shape, np.uint32)

    def add(self, part: Part) -> Part:
        """Add steps, or bins of a finer resolution; return the added values as bins of this resolution."""
        part = part.binned(self.width)
        slots, kept = self._open(part.step // self.width)
        slots = slots[kept]
        self.end_us[slots] = np.maximum(self.end_us[slots], part.end_us[kept])
        self.sums[slots] += part.sums[kept]
        self.counts[slots] += part.counts[kept]
        return part

    def add_values(self, at: Ints, rows: Ints, values: Floats) -> None:
        """Add values of single ranks.

        Args:
            at: [N] Step or second of each value.
            rows: [N] Row of the rank of each value.
            values: [N, quantities] Values; a value that is not finite is missing.

        """
        slots, kept = self._open(at // self.width)
        place, values = (slots[kept], rows[kept]), values[kept]
        measured = np.isfinite(values)
        np.add.at(self.sums, place, np.where(measured, values, 0.0).astype(np.float32))
        np.add.at(self.counts, place, measured.astype(np.uint32))

    def resize_ranks(self, ranks: int) -> None:
        """Make room for `ranks` ranks."""
        missing = ((0, 0), (0, ranks - self.sums.shape[1]), (0, 0))
        self.sums, self.counts = np.pad(self.sums, missing), np.pad(self.counts, missing)

    def widen_to_reach(self, step: int) -> None:
        """Double the width of bins until all steps up to this one fit into the ring buffer, so that none is dropped."""
        half = BINS_PER_RESOLUTION // 2
        while step // self.width >= BINS_PER_RESOLUTION:
            self.width *= 2
            for sums in (self.sums, self.counts):
                sums[:half] = sums[::2] + sums[1::2]
                sums[half:] = 0
            self.end_us[:half] = np.maximum(self.end_us[::2], self.end_us[1::2])
            number = np.maximum(self.number[::2], self.number[1::2]) // 2  # An empty slot stays -1.
            self.number[:half], self.number[half:], self.end_us[half:] = number, -1, 0

    def _open(self, bins: Ints) -> tuple[Ints, Bools]:
        """Make room for bins; return the slot of each, and False for bins that are too old for the buffer."""
        slots, newest = bins % BINS_PER_RESOLUTION, self.number.copy()
        np.maximum.at(newest, slots, bins)
        stale = newest > self.number
        self.number = newest
        self.end_us[stale], self.sums[stale], self.counts[stale] = 0, 0, 0
        return slots, newest[slots] == bins


@dataclass(frozen=True)
class Bins:
    """Neighbouring bins of one resolution, merged in groups of equal size."""

    level: MeanBins
    merged: int
    numbers: Ints
    """[B] Number of each merged bin."""
    slots: Ints
    """[B, merged] Slots of the bins in the ring buffer."""
    present: Bools
    """[B, merged] True where the bin is still in the ring buffer."""

    @classmethod
    def from_level(cls, level: MeanBins, merged: int, numbers: Ints) -> Bins:
        fine = numbers[:, None] * merged + np.arange(merged)
        slots = fine % BINS_PER_RESOLUTION
        return cls(level, merged, numbers, slots, level.number[slots] == fine)

    @property
    def width(self) -> int:
        """Return the number of steps in a merged bin."""
        return self.level.width * self.merged

    @property
    def end_us(self) -> Ints:
        """Return the end in µs of the last step of each bin, [B]; 0 if the bin has no step."""
        ends: Ints = np.where(self.present, self.level.end_us[self.slots], 0).max(axis=1)
        return ends

    def count(self, quantity: str, ranks: slice | Ints = slice(None)) -> Ints:
        """Return the number of values of some ranks, [B, R]."""
        counts: Ints = self._added_up(self.level.counts[:, ranks, self.level.quantities.index(quantity)])
        return counts

    def mean(self, quantity: str, ranks: slice | Ints = slice(None)) -> Floats:
        """Return the mean of some ranks, [B, R]; NaN where they have no value."""
        sums = self._added_up(self.level.sums[:, ranks, self.level.quantities.index(quantity)])
        with np.errstate(divide="ignore", invalid="ignore"):
            means: Floats = sums / self.count(quantity, ranks).astype(np.float32)
        return means

    def _added_up(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the sums over these bins, [B, ...]; bins that are no longer in the ring buffer count as 0."""
        shown: NDArray[Any] = array[self.slots]
        shown[~self.present] = 0
        return shown[:, 0] if self.merged == 1 else shown.sum(axis=1)
