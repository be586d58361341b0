"""The ranks of a world in as many rows as fit, none of them hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RankGroup:
    """Ranks that are shown as one, the worst of them at each moment."""

    columns: tuple[int, ...]
    """Of the world."""
    hosts: tuple[str, str]
    """Of the first and the last."""


def fold(hosts: Sequence[str], most: int) -> list[RankGroup]:
    """The ranks of a world in at most `most` rows: parts of a host, or several whole ones where rows do not suffice.

    hosts: of each column.
    """
    if not hosts:
        return []
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
    return [RankGroup(tuple(part), (hosts[part[0]], hosts[part[-1]])) for part in parts]
