"""Groups all ranks into the rows that fit on a screen. Dashboards import this module, so it must not import NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RankGroup:
    """Ranks that share a row on the screen. The row shows the worst of these ranks at each moment."""

    columns: tuple[int, ...]
    """Columns of the ranks in the world."""
    hosts: tuple[str, str]
    """Hosts of the first and the last rank."""


def group_ranks(hosts: Sequence[str], max_rows: int) -> list[RankGroup]:
    """Distribute the ranks of a world over at most `max_rows` rows.

    A row holds a part of a host, or several whole hosts if there are more hosts than rows.

    Args:
        hosts: Host of each column.
        max_rows: Number of rows on the screen.

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
