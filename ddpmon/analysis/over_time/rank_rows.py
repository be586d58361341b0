"""Values of rows that stand for several ranks each: the worst of them, and how much of a row is hot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.over_time.cells import Bytes
from ddpmon.analysis.over_time.rank_groups import RankGroup
from ddpmon.messages.cells import NOTHING

_MISSES = 20
"""One bin in twenty may be cool in a stretch that is hot: single steps stray."""


def worst_cells(cells: Bytes, rows: Sequence[RankGroup]) -> Bytes:
    """[rows, bins] Return the worst of each row's ranks in every bin."""
    worst_of_each = [cells[list(row.columns)].max(axis=0) for row in rows]
    return np.stack(worst_of_each) if rows else cells[:0]


def worst_column(cells: Bytes, row: RankGroup) -> int:
    """Return the column of a row's rank that is worst over all bins."""
    means = cells[list(row.columns)].astype(np.int64).sum(axis=1)
    return row.columns[int(means.argmax())]


def hot_since(cells: Bytes, least: int) -> tuple[float, int | None]:
    """Tell how much of a row is hot, and since when it has been.

    Args:
        cells: [bins].
        least: The least cell that is hot.

    Returns:
        The share of the bins with a value that are hot, and the first bin from which on all are, but for one in
        twenty; None: the last one is not.

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
    return float(hot.mean()), int(filled[len(hot) - 1 - int(begins[-1])])
