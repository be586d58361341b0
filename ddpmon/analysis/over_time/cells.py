"""Values over time as cells of one byte (see `messages.cells`), and the worst cells of groups of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.rank_groups import RankGroup
from ddpmon.analysis.statistics.arrays import Bools, Floats
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING

Bytes = NDArray[np.uint8]
BINS_PER_RESOLUTION = 256
"""Number of bins that are stored at each resolution: the number of columns of a wide terminal."""


def quantise_values(values: Floats, has_value: Bools, low: float, high: float) -> Bytes:
    """Return the cells of values on a scale from `low` to `high`; values outside are clipped to its ends."""
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    cells = np.where(np.isfinite(values), np.nan_to_num(share) * (MOST - LEAST) + LEAST, NOT_FINITE)
    return np.where(has_value, cells, NOTHING).astype(np.uint8)


def measured_cells(values: Floats, low: float, high: float) -> bytes:
    """Return the cells of values as bytes; NaN stands for a missing value."""
    return quantise_values(values, ~np.isnan(values), low, high).tobytes()


def finite_range(values: Floats) -> tuple[float, float]:
    """Return the lowest and the highest finite value; 0 and 1 if there is none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)


_MISSES = 20
"""Within a hot stretch, one of this number of bins may be below the limit, because single steps vary."""


def worst_cells(cells: Bytes, rows: Sequence[RankGroup]) -> Bytes:
    """Return the worst cell of each row's ranks in every bin, [rows, bins]."""
    worst_of_each = [cells[list(row.columns)].max(axis=0) for row in rows]
    return np.stack(worst_of_each) if rows else cells[:0]


def worst_column(cells: Bytes, row: RankGroup) -> int:
    """Return the column of the row's rank that is worst over all bins."""
    means = cells[list(row.columns)].astype(np.int64).sum(axis=1)
    return row.columns[int(means.argmax())]


def hot_since(cells: Bytes, least: int) -> tuple[float, int | None]:
    """Return the share of hot (high) cells in a row, and the bin since which it has been hot.

    Args:
        cells: [bins] Cells of the row.
        least: The smallest cell that counts as hot.

    Returns:
        The share of hot bins among bins with a value; and the first bin of the present hot stretch, in which all bins
        except one in twenty are hot. It is None if the last bin is not hot, or if most hot bins are earlier.

    """
    filled = np.flatnonzero(cells != NOTHING)
    if not len(filled):
        return 0.0, None
    hot = cells[filled] >= least
    if not hot[-1]:
        return float(hot.mean()), None
    backwards = hot[::-1]
    misses = np.cumsum(~backwards)
    begins = np.flatnonzero((misses <= np.arange(1, len(backwards) + 1) / _MISSES) & backwards)
    begin = len(hot) - 1 - int(begins[-1])
    return float(hot.mean()), int(filled[begin]) if 2 * hot[begin:].sum() >= hot.sum() else None
