"""One rank through time beside its peers: what each phase of its steps took, its loss, and since when it takes longer.

Every rank's means are kept in bins of 1, 8, 64 and 512 steps, in bounded memory. What follows from them is worked out
for the rank that someone looks at.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS, holds_since, latest_bins, quantise
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import HEAT_STEPS, NOTABLE, OWN_PHASES, PHASES, Course, PastRow, Phase

LEAST_EXCESS = Threshold(
    NOTABLE,
    of="share of the peers' median own time by which a phase of one rank is longer",
    why="A judgement: who looks at one rank wants to see what comes before it is reported (8%), above noise.",
)
_LOSS, _OWN, _STEP = range(len(PHASES), len(PHASES) + 3)
"""Columns behind the phases; own time and the step are those of medians alone."""
_LONG = ("own", *OWN_PHASES)
"""What takes longer on a slow rank. It waits less, and its step is as long as its peers'."""
_FLOOR = 0.05
"""Of the step: the least that a scale of milliseconds spans, so that a tiny phase's noise looks like nothing."""
_AIR = 1.3
"""What a scale leaves above what is usual, so that a slow step is seen."""
_BAND = 0.1
"""Share of the median own time that a scale of own times spans below and above it at least: noise stays small."""
_CACHED = 8
"""Ranks, times resolutions, whose peers' medians are kept: those that people switch between."""


@dataclass(frozen=True)
class Courses:
    """All quantities of a rank over time."""

    steps: int
    columns: int
    last_step: int
    rows: list[PastRow]


class _Level:
    """Sums over the last BINS bins of so many steps, as a ring."""

    def __init__(self, steps: int, ranks: int) -> None:
        self.steps = steps
        self.number: Ints = np.full(BINS, -1, np.int64)
        """Which bin is in a slot."""
        self.sums = np.zeros((BINS, ranks, _LOSS + 1), np.float32)
        self.count: Ints = np.zeros(BINS, np.int64)
        self.losses = np.zeros((BINS, ranks), np.int32)

    def append(self, step: Ints, values: NDArray[np.float32], has_loss: Bools) -> None:
        bins = step // self.steps
        first = int(np.searchsorted(bins, bins[-1] - BINS + 1))
        values, has_loss, bins = values[first:], has_loss[first:], bins[first:]
        begins = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
        slots = bins[begins] % BINS
        stale = slots[self.number[slots] != bins[begins]]
        for array in (self.sums, self.count, self.losses):
            array[stale] = 0
        self.number[slots] = bins[begins]
        self.sums[slots] += np.add.reduceat(values, begins, axis=0)
        self.count[slots] += np.diff(np.append(begins, len(bins)))
        self.losses[slots] += np.add.reduceat(has_loss.astype(np.int32), begins, axis=0)

    def means(self, numbers: Ints, ranks: slice) -> NDArray[np.float32]:
        """[bins, ranks, phases and loss]; NaN where there is none. ranks: their columns."""
        slots = numbers % BINS
        there = self.number[slots] == numbers
        means = self.sums[slots, ranks]
        with np.errstate(divide="ignore", invalid="ignore"):
            means[..., :_LOSS] /= self.count[slots, None, None]
            means[..., _LOSS] /= self.losses[slots, ranks]
        means[~there] = np.nan
        return means


@dataclass
class _Peers:
    """Medians of a rank's peers in the bins of a level, kept because they change no more but in the last bin."""

    number: Ints
    medians: Floats


class Past:
    """Means of every rank over bins of steps. A change of the ranks starts it anew."""

    def __init__(self) -> None:
        self.ranks: tuple[int, ...] = ()
        self.last_step = 0
        self._levels: dict[int, _Level] = {}
        self._peers: dict[tuple[int, int], _Peers] = {}

    def append(self, part: World) -> None:
        """Take further steps."""
        if part.ranks != self.ranks or (len(part) and part.step[0] <= self.last_step):
            self.ranks = part.ranks
            self._levels = {steps: _Level(steps, len(part.ranks)) for steps in HEAT_STEPS}
            self._peers.clear()
        if not len(part):
            return
        self.last_step = int(part.step[-1])
        values = np.empty((*part.own_ms.shape, _LOSS + 1), np.float32)
        values[..., : Phase.WAIT] = part.phases_ms
        values[..., Phase.WAIT], values[..., Phase.TRANSFER] = part.wait_ms, part.transfer_ms
        with np.errstate(over="ignore"):
            values[..., _LOSS] = np.where(part.has_loss, part.loss, 0.0)
        for level in self._levels.values():
            level.append(part.step, values, part.has_loss)

    def courses(self, rank: int, steps: int, columns: int) -> Courses | None:
        """A rank through the latest bins; None before its first step. steps: in a bin, one of HEAT_STEPS."""
        level = self._levels.get(steps)
        if level is None or not self.last_step or rank not in self.ranks:
            return None
        place = self.ranks.index(rank)
        numbers = latest_bins(self.last_step, steps, columns)
        mine = level.means(numbers, slice(place, place + 1))[:, 0].astype(np.float64)
        peers = self._medians(level, place, numbers)
        rows = [_phase(name, mine, peers, numbers * steps, steps) for name in ("own", *PHASES, "step")]
        if not np.isnan(mine[:, _LOSS]).all() or level.losses[:, place].any():
            rows.append(_loss(mine, peers, level.losses[numbers % BINS, place] > 0))
        return Courses(steps, len(numbers), self.last_step, rows)

    def own_courses(self, ranks: Sequence[int], steps: int, columns: int) -> list[Course]:
        """Own time of some ranks through the latest bins, on one scale; those that are not in the world are left out.

        The scale begins below what is usual, not at 0: what sets ranks apart is a few percent.
        """
        level = self._levels.get(steps)
        places = [self.ranks.index(rank) for rank in ranks if rank in self.ranks]
        if level is None or not self.last_step or not places:
            return []
        numbers = latest_bins(self.last_step, steps, columns)
        own = level.means(numbers, slice(None))[:, places, : Phase.WAIT].sum(axis=2).astype(np.float64)
        seen = own[np.isfinite(own)]
        middle = float(np.median(seen)) if len(seen) else 0.0
        low = max(0.0, min(float(seen.min(initial=middle)), (1 - _BAND) * middle))
        high = max(_usual(own.ravel()), (1 + _BAND) * middle, 1e-6)
        return [
            Course(self.ranks[place], "own", low, high, _cells(own[:, column], ~np.isnan(own[:, column]), low, high))
            for column, place in enumerate(places)
        ]

    def sync_courses(self, steps: int, columns: int) -> list[Course]:
        """Wait and transfer, mean over ranks and on one scale, and the efficiencies of each bin; none of one rank.

        Of a bin as of a window of steps: load balance = mean(own) / max(own), communication = max(own) / step, and
        their product.
        """
        level = self._levels.get(steps)
        if level is None or not self.last_step or len(self.ranks) < 2:
            return []
        numbers = latest_bins(self.last_step, steps, columns)
        means = level.means(numbers, slice(None))[..., :_LOSS].astype(np.float64)
        wait, transfer = means[..., Phase.WAIT].mean(axis=1), means[..., Phase.TRANSFER].mean(axis=1)
        own, step = means[..., : Phase.WAIT].sum(axis=2), means.sum(axis=2).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            balance, communication = own.mean(axis=1) / own.max(axis=1), own.max(axis=1) / step
        high = max(_usual(wait), _usual(transfer), _FLOOR * _usual(step), 1e-6)
        scaled = [("wait", wait, high), ("transfer", transfer, high), ("parallel", balance * communication, 1.0)]
        scaled += [("load balance", balance, 1.0), ("communication", communication, 1.0)]
        has_step = ~np.isnan(step)
        return [Course(0, name, 0.0, top, _cells(values, has_step, 0.0, top)) for name, values, top in scaled]

    def _medians(self, level: _Level, place: int, numbers: Ints) -> Floats:
        """[bins, phases, loss, own and step] Of all ranks but one; NaN where there are none."""
        key = (place, level.steps)
        if key not in self._peers and len(self._peers) >= _CACHED:
            self._peers.clear()
        kept = self._peers.setdefault(
            key, _Peers(np.full(BINS, -1, np.int64), np.full((BINS, _STEP + 1), np.nan))
        )  # fmt: skip
        slots = numbers % BINS
        wanted = numbers[(kept.number[slots] != numbers) | (numbers == numbers[-1])]
        means = np.delete(level.means(wanted, slice(None)), place, axis=1)
        own, step = means[..., : Phase.WAIT].sum(axis=2), means[..., :_LOSS].sum(axis=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a bin without peers becomes NaN
            medians = np.median(np.concatenate([means, own[..., None], step[..., None]], axis=2), axis=1)
            if np.isnan(medians[:, _LOSS]).any():  # some rank has no loss, or one that is not finite
                medians[:, _LOSS] = np.nanmedian(means[..., _LOSS], axis=1)
        kept.medians[wanted % BINS] = medians
        kept.number[wanted % BINS] = wanted
        kept.number[numbers[-1] % BINS] = -1  # it may grow
        return kept.medians[slots]


def _phase(name: str, mine: Floats, peers: Floats, begins: Ints, steps: int) -> PastRow:
    """The course of a phase, of own time or of the step. begins: first step of each bin."""
    own = mine[:, : Phase.WAIT].sum(axis=1)
    step = mine[:, :_LOSS].sum(axis=1)
    if name in PHASES:
        place = PHASES.index(name)
        values, others = mine[:, place], peers[:, place]
    else:
        values, others = (own, peers[:, _OWN]) if name == "own" else (step, peers[:, _STEP])
    high = max(_AIR * max(_usual(values), _usual(others)), _FLOOR * _usual(step), 1e-6)
    longer = ""
    if name in _LONG:
        over = values - others > LEAST_EXCESS.enter * peers[:, _OWN]
        longer = _since(over, ~np.isnan(values) & ~np.isnan(others), begins, steps)
    return PastRow(name, 0.0, high, _cells(values, ~np.isnan(step), 0.0, high), _peers_cells(others, 0.0, high), longer)


def _loss(mine: Floats, peers: Floats, has_loss: Bools) -> PastRow:
    values, others = mine[:, _LOSS], peers[:, _LOSS]
    finite = np.concatenate([values[np.isfinite(values)], others[np.isfinite(others)]])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return PastRow("loss", low, high, _cells(values, has_loss, low, high), _peers_cells(others, low, high))


def _usual(values: Floats) -> float:
    """The highest value worth a scale: one slow step must not press the others flat."""
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return 0.0
    usual, most = float(ordered[int(0.95 * (len(ordered) - 1))]), float(ordered[-1])
    return most if most <= 2 * usual or len(ordered) < 20 else 1.5 * usual


def _cells(values: Floats, has_value: Bools, low: float, high: float) -> bytes:
    return quantise(values, has_value, low, high).tobytes()


def _peers_cells(values: Floats, low: float, high: float) -> bytes:
    return _cells(values, ~np.isnan(values), low, high)


def _since(over: Bools, has_value: Bools, begins: Ints, steps: int) -> str:
    """Since when a phase takes longer, in words; empty if it does not.

    The last bin may have only just begun: it counts where it agrees.
    """
    places = np.flatnonzero(has_value)
    if len(places) > 1 and not over[places[-1]]:
        places = places[:-1]
    since = holds_since(over[places])
    if since is None:
        return ""
    if since == 0:
        return "in all of these steps" if len(places) > 1 else ""
    first = max(1, int(begins[places[since]]))
    return f"since step {first:,}" if steps == 1 else f"since about step {first:,}"
