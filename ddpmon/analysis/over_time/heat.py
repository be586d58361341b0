"""Every rank through time, in bounded memory: bins of steps at several resolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS, Bytes, holds_since, latest_bins, quantise
from ddpmon.analysis.over_time.fold import RankGroup
from ddpmon.analysis.over_time.utilization import Overlaps, Utilization
from ddpmon.analysis.statistics.arrays import Ints
from ddpmon.analysis.statistics.excess import over_peers, share_over_peers
from ddpmon.analysis.statistics.scan import ScanResult, Values, scan
from ddpmon.analysis.steps.world import World
from ddpmon.messages import HEAT_LEVELS, HEAT_METRICS, HEAT_STEPS, OWN_PHASES
from ddpmon.messages.cells import LEAST, MOST, NOTHING

OVER = (-0.25, 1.0)
"""Scale of values over or below a median, as shares: a quarter below to twice as much."""
IDLE = (0.0, 1.0)
"""Scale of GPU utilization, as the share of time in which the GPU was idle, so that more is worse."""
BY_CHANCE, BEYOND = 1, 2
"""What a cell holds of what exceeds chance: it does not; it does, and by less than the second of HEAT_LEVELS."""
CLEAR = 1.5
"""So many times what would show in the bins themselves is not taken from longer ones, whose edges are coarse."""
_SUMMED = tuple(metric for metric in HEAT_METRICS if metric != "gpu")
"""What every step brings with it. GPU utilization is sampled by the second, and comes after the step."""
_OWN, _WAIT, _STEP, _LOSS = (_SUMMED.index(name) for name in ("own", "wait", "step", "loss"))
_PHASES = slice(_SUMMED.index(OWN_PHASES[0]), _SUMMED.index(OWN_PHASES[-1]) + 1)


@dataclass(frozen=True)
class Grid:
    """[rows, bins] cells of a metric, the oldest bin first; `low` and `high` are what LEAST and MOST stand for."""

    cells: Bytes
    first_bin: int
    """The step of a bin's begin is its number times `steps`."""
    steps: int
    low: float
    high: float
    last_step: int


@dataclass(frozen=True)
class _Part:
    """Sums over some neighbouring steps each."""

    step: Ints
    """One of them."""
    sums: Values
    usual: Values
    """Of the medians of all ranks: own time, and each of its phases; ms."""
    count: Ints
    losses: NDArray[np.int32]

    def binned(self, steps: int) -> _Part:
        """The same, with those of a bin of so many steps added up."""
        bins = self.step // steps
        begins = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
        if len(begins) == len(bins):
            return self
        parts = (self.sums, self.usual, self.count, self.losses)
        return _Part(self.step[begins], *(np.add.reduceat(each, begins, axis=0) for each in parts))


@dataclass(frozen=True)
class _Judged:
    """What of a metric exceeds chance in the bins of a level."""

    metric: str
    until: int
    """The step, or the bin, up to which it is judged."""
    numbers: Ints
    """[S] Of the bins."""
    scan: ScanResult


class _Level:
    """The last BINS bins of one resolution, as a ring."""

    def __init__(self, steps: int, ranks: int) -> None:
        self.steps = steps
        self.number: Ints = np.full(BINS, -1, np.int64)
        """Which bin is in a slot."""
        self.sums = np.zeros((BINS, ranks, len(_SUMMED)), np.float32)
        self.usual = np.zeros((BINS, 1 + len(OWN_PHASES)), np.float32)
        self.count: Ints = np.zeros(BINS, np.int64)
        self.losses = np.zeros((BINS, ranks), np.int32)
        self.idle: NDArray[np.float32] | None = None
        """Sums of the samples that overlap a bin; None: no GPU was sampled."""
        self.samples = np.zeros((0, ranks), np.int32)
        self.judged: _Judged | None = None
        """The latest that was asked for."""

    def append(self, part: _Part) -> _Part:
        """Add steps, or bins of a finer level; what was added as bins of this one."""
        part = part.binned(self.steps)
        bins = part.step[-BINS:] // self.steps
        slots = bins % BINS
        fresh = self.number[slots] != bins
        self.sums[slots[fresh]] = 0
        self.usual[slots[fresh]] = 0
        self.count[slots[fresh]] = 0
        self.losses[slots[fresh]] = 0
        if self.idle is not None:
            self.idle[slots[fresh]] = 0
            self.samples[slots[fresh]] = 0
        self.number[slots] = bins
        self.sums[slots] += part.sums[-BINS:]
        self.usual[slots] += part.usual[-BINS:]
        self.count[slots] += part.count[-BINS:]
        self.losses[slots] += part.losses[-BINS:]
        return part

    def overlay(self, samples: Overlaps) -> None:
        """Add samples to the bins that they overlap, as far as those are kept."""
        if self.idle is None:
            self.idle = np.zeros(self.sums.shape[:2], np.float32)
            self.samples = np.zeros(self.sums.shape[:2], np.int32)
        last = samples.last // self.steps
        first = np.maximum(samples.first // self.steps, last - BINS + 1)
        count = last - first + 1
        sample = np.repeat(np.arange(len(count)), count)
        bins = first[sample] + np.arange(len(sample)) - np.repeat(np.cumsum(count) - count, count)
        slots, column = bins % BINS, samples.column[sample]
        kept = self.number[slots] == bins
        np.add.at(self.idle, (slots[kept], column[kept]), 1 - samples.busy[sample[kept]])
        np.add.at(self.samples, (slots[kept], column[kept]), 1)


class Heat:
    """Means of every rank over bins of 1, 8, 64 and 512 steps. A change of the ranks starts it anew."""

    def __init__(self) -> None:
        self.ranks: tuple[int, ...] = ()
        self.last_step = 0
        self._levels: dict[int, _Level] = {}
        self._utilization = Utilization()

    def sample(self, rank: int, since_us: int, at_us: int, percent: float) -> None:
        """Take a rank's GPU utilization between two moments of its own clock, for the next `lay`."""
        self._utilization.sample(rank, since_us, at_us, percent)

    def lay(self) -> None:
        """Lay the samples over the steps that they overlap, as far as those have come."""
        samples = self._utilization.overlaps(self.ranks)
        if samples is not None:
            for level in self._levels.values():
                level.overlay(samples)

    def append(self, part: World, ahead_us: Ints | None = None) -> None:
        """Take further steps. ahead_us: [R] by how much the clock of their ends is ahead of each rank's own."""
        if part.ranks != self.ranks or (len(part) and part.step[0] <= self.last_step):
            self.ranks = part.ranks
            self._levels = {steps: _Level(steps, len(part.ranks)) for steps in HEAT_STEPS}
            self._utilization.forget()
        if not len(part):
            return
        self.last_step = int(part.step[-1])
        values = np.empty((*part.own_ms.shape, len(_SUMMED)), np.float32)
        typical = part.own_ms - part.excess_ms
        with np.errstate(divide="ignore", invalid="ignore"):
            values[..., _OWN] = share_over_peers(part.own_ms, part.excess_ms)
            for place in range(len(OWN_PHASES)):
                over = over_peers(part.phases_ms[..., place])
                values[..., _PHASES.start + place] = np.nan_to_num(over / typical, posinf=0.0, neginf=0.0)
            values[..., _WAIT] = np.nan_to_num(part.wait_ms / part.length_ms)
        values[..., _STEP] = part.length_ms
        values[..., _LOSS] = np.where(part.has_loss, part.loss, 0.0)
        usual = np.column_stack([part.typical_ms, np.median(part.phases_ms, axis=1)]).astype(np.float32)
        added = _Part(part.step, values, usual, np.ones(len(part), np.int64), part.has_loss.astype(np.int32))
        for level in self._levels.values():  # each from the bins of the finer one before it
            added = level.append(added)
        self._utilization.append(part, np.zeros(len(part.ranks), np.int64) if ahead_us is None else ahead_us)

    def grid(self, metric: str, steps: int, bins: int) -> Grid | None:
        """The latest bins of a metric, one row a rank; None before the first step. steps: one of HEAT_STEPS."""
        level = self._levels.get(steps)
        if level is None or not self.last_step:
            return None
        numbers = latest_bins(self.last_step, steps, bins)
        slots = numbers % BINS
        there = level.number[slots] == numbers
        sums, counts = self._of(level, metric, slots)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = sums / counts
        has_value = (counts > 0) & there[:, None] & np.ones_like(values, bool)
        low, high = OVER
        if metric == "wait":
            low, high = 0.0, 1.0
        elif metric == "gpu":
            low, high = IDLE
        elif metric == "step":
            middle = np.median(values[has_value]) if has_value.any() else 1.0
            values = values / max(float(middle), 1e-9) - 1
        elif metric == "loss":
            finite = values[has_value & np.isfinite(values)]
            low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        return Grid(quantise(values, has_value, low, high).T, int(numbers[0]), steps, low, high, self.last_step)

    def beyond_chance(self, metric: str, steps: int, bins: int) -> Grid | None:
        """The latest bins of a metric, as `grid` has them, by how far they exceed what chance explains.

        That of each rank over its peers, and that of all of them over what is usual for all. A cell is NOTHING,
        BY_CHANCE, or BEYOND and one more for each of HEAT_LEVELS that it reaches. Where the bins tell too little, those
        of the next resolution are asked, whose means stray less. metric: own time or one of its phases, or the step.
        """
        level = self._levels.get(steps)
        if level is None or not self.last_step:
            return None
        judged = self._judged(level, metric, self.last_step // steps, self.last_step)
        over = judged.scan.over
        wider = next((each for length, each in self._levels.items() if length > steps), None)
        if wider is not None and (ended := (self.last_step + 1) // wider.steps - 1) >= 0:
            coarse = self._judged(wider, metric, ended, ended)
            if len(coarse.numbers):
                # The bin that has not ended yet goes on as the one before it.
                wanted = np.minimum(judged.numbers * steps // wider.steps, coarse.numbers[-1])
                place = np.searchsorted(coarse.numbers, wanted).clip(max=len(coarse.numbers) - 1)
                more = coarse.scan.over[place] * (coarse.numbers[place] == wanted)[:, None]
                over = np.maximum(over, np.where(more < CLEAR * judged.scan.least, more, 0))
        numbers = latest_bins(self.last_step, steps, bins)
        there = np.isin(numbers, judged.numbers)
        over = over[np.isin(judged.numbers, numbers)]
        cells = np.full((len(numbers), len(self.ranks)), NOTHING, np.uint8)
        cells[there] = np.where(over > 0, BEYOND + np.searchsorted(HEAT_LEVELS[1:], over, side="right"), BY_CHANCE)
        return Grid(cells.T, int(numbers[0]), steps, HEAT_LEVELS[0], HEAT_LEVELS[-1], self.last_step)

    def _judged(self, level: _Level, metric: str, last: int, until: int) -> _Judged:
        """What exceeds chance in a level's bins up to number `last`, judged anew where `until` is another."""
        if level.judged is None or (level.judged.metric, level.judged.until) != (metric, until):
            numbers = np.sort(level.number[(level.number > last - BINS) & (level.number <= last) & (level.number >= 0)])
            slots = numbers % BINS
            level.judged = _Judged(metric, until, numbers, _scanned(level, metric, slots))
        return level.judged

    @staticmethod
    def _of(level: _Level, metric: str, slots: Ints) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
        """Sums of a metric in some slots, and of how many values."""
        if metric == "gpu":
            if level.idle is None:
                nothing = np.zeros((len(slots), level.sums.shape[1]), np.int64)
                return nothing.astype(np.float64), nothing
            return level.idle[slots], level.samples[slots]
        place = _SUMMED.index(metric)
        sums = level.sums[slots, :, place]
        return (sums, level.losses[slots]) if place == _LOSS else (sums, level.count[slots, None])


def _scanned(level: _Level, metric: str, slots: Ints) -> ScanResult:
    """What exceeds chance: each rank's means over the peers', and those of all over what is usual."""
    count = level.count[slots, None].astype(np.float32)
    usual = level.usual[slots] / count
    # The mean of a bin that is not full strays more: it counts for less, so that all stray alike.
    full = np.sqrt(count / level.steps)
    if metric == "step":
        everyone = np.median(level.sums[slots, :, _STEP], axis=1) / count[:, 0]
        whole = everyone
        over = np.zeros((len(slots), level.sums.shape[1]), np.float32)
    else:
        everyone, whole = usual[:, 0 if metric == "own" else 1 + OWN_PHASES.index(metric)], usual[:, 0]
        over = level.sums[slots, :, _SUMMED.index(metric)] / count
    ranks = scan(over * full)
    if not len(slots):
        return ranks
    usually = max(float(np.median(whole)), 1e-9)
    together = scan((everyone[:, None] - np.median(everyone)) / usually * full)
    return ScanResult(np.maximum(ranks.over, together.over), ranks.least)


def code(grid: Grid, value: float) -> int:
    """The least cell that stands for at least `value`."""
    share = (value - grid.low) / max(grid.high - grid.low, 1e-12)
    return int(np.ceil(np.clip(share, 0.0, 1.0) * (MOST - LEAST) + LEAST - 1e-6))


def folded(cells: Bytes, rows: Sequence[RankGroup]) -> Bytes:
    """The worst of each row's ranks in every bin."""
    worst_of_each = [cells[list(row.columns)].max(axis=0) for row in rows]
    return np.stack(worst_of_each) if rows else cells[:0]


def worst(cells: Bytes, row: RankGroup) -> int:
    """The column of a row's rank that is worst over all bins."""
    means = cells[list(row.columns)].astype(np.int64).sum(axis=1)
    return row.columns[int(means.argmax())]


def hot_since(cells: Bytes, least: int) -> tuple[float, int | None]:
    """Share of a row's bins with a value that are at least `least`, and since which place they are; None: not now.

    cells: [bins].
    """
    filled = np.flatnonzero(cells != NOTHING)
    if not len(filled):
        return 0.0, None
    hot = cells[filled] >= least
    since = holds_since(hot)
    return float(hot.mean()), None if since is None else int(filled[since])
