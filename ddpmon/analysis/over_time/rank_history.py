"""Curves of the phases and the loss of ranks over time, each with the curve of the rank's peers.

Curves are computed only for ranks that a user looks at, from the bins of steps of the heat map.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from ddpmon.analysis.over_time.cells import finite_range, measured_cells, quantise_values
from ddpmon.analysis.over_time.heat import Heat, LateSteps, step_ms
from ddpmon.analysis.over_time.mean_bins import Bins
from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.statistics.excess import some_of
from ddpmon.messages import PHASES, Course

_FLOOR = 0.05
"""Minimum upper end of a chart's scale in ms, as a share of the step, so that the noise of a short phase looks
small."""
_AIR = 1.3
"""Upper end of a chart's scale, as a multiple of the highest value that it must show, so that a slow step stands
out."""
_BAND = 0.1
"""Minimum distance between the median own time and each end of the chart's scale, as a share of the median. It keeps
noise small in the chart."""


def rank_courses(heat: Heat, rank: int, steps: int, columns: int, late: Iterable[LateSteps] = ()) -> list[Course]:
    """Return all quantities of a rank over the latest bins; empty before its first step.

    Args:
        heat: Bins of all ranks.
        rank: The rank that is inspected.
        steps: Number of steps in a bin, one of HEAT_STEPS.
        columns: Maximum number of bins.
        late: Steps in which findings say that ranks were late.

    """
    bins, ranks = heat.latest_bins(steps, columns), heat.ranks
    if bins is None or rank not in ranks:
        return []
    place = ranks.index(rank)
    peers = some_of(np.delete(np.arange(len(ranks)), place))
    since = {name: each for each in late if each.last is None and rank in each.ranks for name in ("own", each.phase)}
    mine, others = _course_ms(bins, np.array([place])), _course_ms(bins, peers)
    step = mine["step"][:, 0]
    rows = []
    for name in ("own", *PHASES, "step"):
        values, usual = mine[name][:, 0], _medians(others[name])
        high = max(_AIR * max(_highest(values), _highest(usual)), _FLOOR * _highest(step), 1e-6)
        cells, peer_cells = measured_cells(values, 0.0, high), measured_cells(usual, 0.0, high)
        finding = since.get(name)
        longer = f"since {'about ' * finding.about}step {finding.first:,}" if finding else ""
        rows.append(Course(rank, name, 0.0, high, cells, peer_cells, longer))
    has_loss = bins.count("loss", np.array([place]))[:, 0] > 0
    if has_loss.any():
        loss, usual = bins.mean("loss", np.array([place]))[:, 0], _medians(bins.mean("loss", peers))
        low, high = finite_range(np.concatenate([loss, usual]))
        cells = quantise_values(loss, has_loss, low, high).tobytes()
        rows.append(Course(rank, "loss", low, high, cells, measured_cells(usual, low, high)))
    return rows


def own_courses(heat: Heat, ranks: Sequence[int], steps: int, columns: int) -> list[Course]:
    """Return the own time of some ranks over the latest bins, on one scale. Leave out unknown ranks.

    The scale begins below the usual value, not at 0, because ranks differ by a few percent.
    """
    bins = heat.latest_bins(steps, columns)
    ranks = [rank for rank in ranks if rank in heat.ranks]
    if bins is None or not ranks:
        return []
    own = _course_ms(bins, np.array([heat.ranks.index(rank) for rank in ranks]))["own"]
    seen = own[np.isfinite(own)]
    middle = float(np.median(seen)) if len(seen) else 0.0
    low = max(0.0, min(float(seen.min(initial=middle)), (1 - _BAND) * middle))
    high = max(_highest(own.ravel()), (1 + _BAND) * middle, 1e-6)
    return [
        Course(rank, "own", low, high, measured_cells(values, low, high))
        for rank, values in zip(ranks, own.T, strict=True)
    ]


def sync_courses(heat: Heat, steps: int, columns: int) -> list[Course]:
    """Return wait and transfer as means over ranks on one scale, and the efficiencies of each bin; empty for one rank.

    The efficiencies of a bin are defined as for a window of steps: load balance = mean(own) / max(own), communication =
    max(own) / step, and their product.
    """
    bins = heat.latest_bins(steps, columns)
    if bins is None or len(heat.ranks) < 2:
        return []
    ms = _course_ms(bins, slice(None))
    wait, transfer, step = (ms[name].mean(axis=1) for name in ("wait", "transfer", "step"))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slowest = ms["own"].max(axis=1)
        balance, communication = ms["own"].mean(axis=1) / slowest, slowest / step
    high = max(_highest(wait), _highest(transfer), _FLOOR * _highest(step), 1e-6)
    scaled = [("wait", wait, high), ("transfer", transfer, high), ("parallel", balance * communication, 1.0)]
    scaled += [("load balance", balance, 1.0), ("communication", communication, 1.0)]
    has_step = ~np.isnan(step)
    return [
        Course(0, name, 0.0, top, quantise_values(values, has_step, 0.0, top).tobytes()) for name, values, top in scaled
    ]


def _course_ms(bins: Bins, columns: slice | Ints) -> dict[str, Floats]:
    """Return own time, each phase and the step of the ranks in some columns by name, [B, R] each."""
    return {name: bins.mean(name, columns) for name in ("own", *PHASES)} | {"step": step_ms(bins, columns)}


def _medians(peers: Floats) -> Floats:
    """Return the median over peers with a value, [B]; NaN where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        middle: Floats = np.median(peers, axis=1)
        return np.nanmedian(peers, axis=1) if np.isnan(middle).any() else middle


def _highest(values: Floats) -> float:
    """Return the highest value that the scale must show. One slow step must not flatten the curve of the others."""
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return 0.0
    usual, most = float(ordered[int(0.95 * (len(ordered) - 1))]), float(ordered[-1])
    return most if most <= 2 * usual or len(ordered) < 20 else 1.5 * usual
