"""One rank through time beside its peers: what each phase of its steps took, and its loss.

Worked out for the rank that someone looks at, from the bins of steps that the heat map has.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from ddpmon.analysis.over_time.cells import quantise
from ddpmon.analysis.over_time.heat import Heat, LateSteps
from ddpmon.analysis.over_time.step_bins import Bins
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.statistics.excess import some_of
from ddpmon.messages import PHASES, Course, PastRow, Phase

_LOSS, _OWN, _STEP = range(len(PHASES), len(PHASES) + 3)
"""Columns behind the phases."""
_FLOOR = 0.05
"""Of the step: the least that a scale of milliseconds spans, so that a tiny phase's noise looks like nothing."""
_AIR = 1.3
"""What a scale leaves above what is usual, so that a slow step is seen."""
_BAND = 0.1
"""Share of the median own time that a scale of own times spans below and above it at least: noise stays small."""


class Past:
    """Quantities of ranks over time, from the same bins as the heat map."""

    def __init__(self, heat: Heat) -> None:
        self._heat = heat

    def courses(self, rank: int, steps: int, columns: int, late: Iterable[LateSteps] = ()) -> list[PastRow]:
        """Return all quantities of a rank over the latest bins; none before its first step.

        Args:
            rank: Of the world.
            steps: In a bin, one of HEAT_STEPS.
            columns: At most.
            late: What findings say of ranks.

        """
        bins, ranks = self._heat.bins(steps, columns), self._heat.ranks
        if bins is None or rank not in ranks:
            return []
        place = ranks.index(rank)
        mine = _quantities(bins, np.array([place]))[:, 0]
        peers = _medians(_quantities(bins, some_of(np.delete(np.arange(len(ranks)), place))))
        since = {
            name: each for each in late if each.last is None and rank in each.ranks for name in ("own", each.phase)
        }
        rows = [_phase(name, mine, peers, since.get(name)) for name in ("own", *PHASES, "step")]
        if bins.level.losses[:, place].any():
            rows.append(_loss(mine, peers, bins.sums("loss")[1][:, place] > 0))
        return rows

    def own_courses(self, ranks: Sequence[int], steps: int, columns: int) -> list[Course]:
        """Own time of some ranks through the latest bins, on one scale; those that are not in the world are left out.

        The scale begins below what is usual, not at 0: what sets ranks apart is a few percent.
        """
        bins, world = self._heat.bins(steps, columns), self._heat.ranks
        ranks = [rank for rank in ranks if rank in world]
        if bins is None or not ranks:
            return []
        own = bins.mean_ms(np.array([world.index(rank) for rank in ranks]))[..., : Phase.WAIT].sum(axis=2)
        seen = own[np.isfinite(own)]
        middle = float(np.median(seen)) if len(seen) else 0.0
        low = max(0.0, min(float(seen.min(initial=middle)), (1 - _BAND) * middle))
        high = max(_usual(own.ravel()), (1 + _BAND) * middle, 1e-6)
        return [
            Course(rank, "own", low, high, _cells(values, ~np.isnan(values), low, high))
            for rank, values in zip(ranks, own.T, strict=True)
        ]

    def sync_courses(self, steps: int, columns: int) -> list[Course]:
        """Wait and transfer, mean over ranks and on one scale, and the efficiencies of each bin; none of one rank.

        Of a bin as of a window of steps: load balance = mean(own) / max(own), communication = max(own) / step, and
        their product.
        """
        bins = self._heat.bins(steps, columns)
        if bins is None or len(self._heat.ranks) < 2:
            return []
        means = bins.mean_ms(slice(None))
        wait, transfer = means[..., Phase.WAIT].mean(axis=1), means[..., Phase.TRANSFER].mean(axis=1)
        own, step = means[..., : Phase.WAIT].sum(axis=2), means.sum(axis=2).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            balance, communication = own.mean(axis=1) / own.max(axis=1), own.max(axis=1) / step
        high = max(_usual(wait), _usual(transfer), _FLOOR * _usual(step), 1e-6)
        scaled = [("wait", wait, high), ("transfer", transfer, high), ("parallel", balance * communication, 1.0)]
        scaled += [("load balance", balance, 1.0), ("communication", communication, 1.0)]
        has_step = ~np.isnan(step)
        return [Course(0, name, 0.0, top, _cells(values, has_step, 0.0, top)) for name, values, top in scaled]


def _quantities(bins: Bins, columns: Ints) -> Floats:
    """[B, ranks, 10] Phases, loss, own time and step of the ranks in some columns; NaN where there is none."""
    ms = bins.mean_ms(columns)
    own, step = ms[..., : Phase.WAIT].sum(axis=2), ms.sum(axis=2)
    return np.concatenate([ms, np.stack([bins.mean_loss(columns), own, step], axis=2)], axis=2)


def _medians(peers: Floats) -> Floats:
    """[B, 10] Their medians; NaN where there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bin without peers becomes NaN
        middle: Floats = np.median(peers, axis=1)
        if np.isnan(middle[:, _LOSS]).any():  # some rank has no loss, or one that is not finite
            middle[:, _LOSS] = np.nanmedian(peers[..., _LOSS], axis=1)
    return middle


def _phase(name: str, mine: Floats, peers: Floats, late: LateSteps | None) -> PastRow:
    """The course of a phase, of own time or of the step. late: since when it takes longer."""
    place = {"own": _OWN, "step": _STEP}.get(name) or PHASES.index(name)
    values, others, step = mine[:, place], peers[:, place], mine[:, _STEP]
    high = max(_AIR * max(_usual(values), _usual(others)), _FLOOR * _usual(step), 1e-6)
    longer = f"since {'about ' * late.about}step {late.first:,}" if late else ""
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
