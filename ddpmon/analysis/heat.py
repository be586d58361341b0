"""Every rank through time, in bounded memory: bins of steps at several resolutions, folded to as many rows as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.arrays import Floats, Ints
from ddpmon.analysis.world import World
from ddpmon.messages import HEAT_METRICS, HEAT_STEPS

BINS = 256
"""Kept of each resolution."""
NOTHING, LEAST, MOST, NOT_FINITE = 0, 1, 254, 255
"""What a cell holds: nothing is known, the lower to the upper end of the scale, a value that is no number."""
OVER = (-0.25, 1.0)
"""Scale of what is told as over or below a median: a quarter below to twice as much."""
HOT = 0.05
"""Over the median by so much: what the map's lowest mark stands for."""
Bytes = NDArray[np.uint8]
_OWN, _WAIT, _STEP, _LOSS = range(len(HEAT_METRICS))


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
class Row:
    """Ranks that are shown as one, the worst of them at each moment."""

    columns: tuple[int, ...]
    """Of the world."""
    hosts: tuple[str, str]
    """Of the first and the last."""


class _Level:
    """The last BINS bins of one resolution, as a ring."""

    def __init__(self, steps: int, ranks: int) -> None:
        self.steps = steps
        self.number: Ints = np.full(BINS, -1, np.int64)
        """Which bin is in a slot."""
        self.sums = np.zeros((BINS, ranks, len(HEAT_METRICS)), np.float32)
        self.count: Ints = np.zeros(BINS, np.int64)
        self.losses = np.zeros((BINS, ranks), np.int32)

    def append(self, step: Ints, values: NDArray[np.float32], has_loss: NDArray[np.bool_]) -> None:
        bins = step // self.steps
        begins = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))[-BINS:]
        values, has_loss, bins = values[begins[0] :], has_loss[begins[0] :], bins[begins[0] :]
        begins = begins - begins[0]
        slots = bins[begins] % BINS
        fresh = self.number[slots] != bins[begins]
        self.sums[slots[fresh]] = 0
        self.count[slots[fresh]] = 0
        self.losses[slots[fresh]] = 0
        self.number[slots] = bins[begins]
        self.sums[slots] += np.add.reduceat(values, begins, axis=0)
        self.count[slots] += np.diff(np.append(begins, len(bins)))
        self.losses[slots] += np.add.reduceat(has_loss.astype(np.int32), begins, axis=0)


class Heat:
    """Means of every rank over bins of 1, 8, 64 and 512 steps. A change of the ranks starts it anew."""

    def __init__(self) -> None:
        self.ranks: tuple[int, ...] = ()
        self.last_step = 0
        self._levels: dict[int, _Level] = {}

    def append(self, part: World) -> None:
        """Take further steps."""
        if part.ranks != self.ranks or (len(part) and part.step[0] <= self.last_step):
            self.ranks = part.ranks
            self._levels = {steps: _Level(steps, len(part.ranks)) for steps in HEAT_STEPS}
        if not len(part):
            return
        self.last_step = int(part.step[-1])
        values = np.empty((*part.own_ms.shape, len(HEAT_METRICS)), np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            values[..., _OWN] = np.nan_to_num(part.own_ms / part.typical_ms[:, None] - 1, posinf=0.0)
            values[..., _WAIT] = np.nan_to_num(part.wait_ms / part.length_ms)
        values[..., _STEP] = part.length_ms
        values[..., _LOSS] = np.where(part.has_loss, part.loss, 0.0)
        for level in self._levels.values():
            level.append(part.step, values, part.has_loss)

    def grid(self, metric: str, steps: int, bins: int) -> Grid | None:
        """The latest bins of a metric, one row a rank; None before the first step. steps: one of HEAT_STEPS."""
        level = self._levels.get(steps)
        if level is None or not self.last_step:
            return None
        last = self.last_step // steps
        numbers = np.arange(max(0, last - min(bins, BINS) + 1), last + 1)
        slots = numbers % BINS
        there = level.number[slots] == numbers
        place = HEAT_METRICS.index(metric)
        counts = level.losses[slots] if place == _LOSS else np.broadcast_to(level.count[slots, None], (len(slots), 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = level.sums[slots, :, place] / counts
        known = (counts > 0) & there[:, None] & np.ones_like(values, bool)
        low, high = OVER
        if place == _WAIT:
            low, high = 0.0, 1.0
        elif place == _STEP:
            middle = np.median(values[known]) if known.any() else 1.0
            values = values / max(float(middle), 1e-9) - 1
        elif place == _LOSS:
            finite = values[known & np.isfinite(values)]
            low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        return Grid(_quantise(values, known, low, high).T, int(numbers[0]), steps, low, high, self.last_step)


def _quantise(values: Floats, known: NDArray[np.bool_], low: float, high: float) -> Bytes:
    span = max(high - low, 1e-12)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.clip((values - low) / span, 0.0, 1.0) * (MOST - LEAST) + LEAST
    cells = np.where(np.isfinite(values), np.nan_to_num(scaled), NOT_FINITE)
    return np.where(known, cells, NOTHING).astype(np.uint8)


def code(grid: Grid, value: float) -> int:
    """The least cell that stands for at least `value`."""
    share = (value - grid.low) / max(grid.high - grid.low, 1e-12)
    return int(np.ceil(np.clip(share, 0.0, 1.0) * (MOST - LEAST) + LEAST - 1e-6))


def fold(hosts: Sequence[str], most: int) -> list[Row]:
    """The ranks of a world in at most `most` rows: parts of a host, or several whole ones where rows do not suffice.

    hosts: of each column.
    """
    groups: dict[str, list[int]] = {}
    for column, host in enumerate(hosts):
        groups.setdefault(host, []).append(column)
    if len(groups) <= most:
        size = 1
        while sum(-(-len(group) // size) for group in groups.values()) > most:
            size += 1
        parts = [group[i : i + size] for group in groups.values() for i in range(0, len(group), size)]
    else:
        size = -(-len(groups) // most)
        whole = list(groups.values())
        parts = [[column for group in whole[i : i + size] for column in group] for i in range(0, len(whole), size)]
    return [Row(tuple(part), (hosts[part[0]], hosts[part[-1]])) for part in parts]


def folded(cells: Bytes, rows: Sequence[Row]) -> Bytes:
    """The worst of each row's ranks in every bin."""
    return np.stack([cells[list(row.columns)].max(axis=0) for row in rows])


def worst(cells: Bytes, row: Row) -> int:
    """The column of a row's rank that is worst over all bins."""
    means = cells[list(row.columns)].astype(np.int64).sum(axis=1)
    return row.columns[int(means.argmax())]


def hot_since(cells: Bytes, least: int) -> tuple[float, int | None]:
    """Share of a row's known bins that are at least `least`, and since which place in it all are; None: they are not.

    cells: [bins]. Of twenty bins at the end, one may be below.
    """
    known = np.flatnonzero(cells != NOTHING)
    if not len(known):
        return 0.0, None
    hot = cells[known] >= least
    if not hot[-1]:
        return float(hot.mean()), None
    below = np.cumsum(~hot[::-1])
    length = np.arange(1, len(hot) + 1)
    fits = np.flatnonzero((below <= length / 20) & hot[::-1])
    return float(hot.mean()), int(known[len(hot) - 1 - int(fits[-1])])
