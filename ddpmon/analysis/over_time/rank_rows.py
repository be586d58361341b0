"""The ranks of a world in as many rows as fit, none of them hidden, and what each row shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.over_time.cells import Bytes
from ddpmon.messages.cells import NOTHING

_MISSES = 20
"""One bin in twenty may be cool in a stretch that is hot: single steps stray."""


@dataclass(frozen=True)
class RankGroup:
    """Ranks that are shown as one, the worst of them at each moment."""

    columns: tuple[int, ...]
    """Columns of the world."""
    hosts: tuple[str, str]
    """Hosts of the first and the last rank."""


def group_ranks(hosts: Sequence[str], max_rows: int) -> list[RankGroup]:
    """Spread the ranks of a world over at most `max_rows` rows.

    A row holds a part of a host, or several whole ones where rows do not suffice.

    Args:
        hosts: Host of each column.
        max_rows: Rows on the screen.

    """
    if not hosts:
        return []
    groups: dict[str, list[int]] = {}
    for column, host in enumerate(hosts):
        groups.setdefault(host, []).append(column)
    if len(groups) <= max_rows:
        size = 1
        while sum(-(-len(group) // size) for group in groups.values()) > max_rows:
            size += 1
        parts = [group[i : i + size] for group in groups.values() for i in range(0, len(group), size)]
    else:
        size = -(-len(groups) // max_rows)
        whole = list(groups.values())
        parts = [[column for group in whole[i : i + size] for column in group] for i in range(0, len(whole), size)]
    return [RankGroup(tuple(part), (hosts[part[0]], hosts[part[-1]])) for part in parts]


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
