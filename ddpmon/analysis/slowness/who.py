"""Decide which ranks changed, by what each of them took before: these, the others, or all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.analysis.slowness.past import Rows
from ddpmon.analysis.slowness.slowdown import Changed, Scope, Signal, Slowdown
from ddpmon.analysis.statistics.arrays import Floats, Ints, median, medians

TOGETHER_STEPS = 16
"""Steps that first steps may lie apart to be one change: the detector's estimates are off by as much."""
COMPARED_STEPS, FEWEST_ROWS = 60, 8
"""Steps before and after a change whose medians are compared, and rows of the run that these must be at least."""
UNSURE = 3.0
"""Median deviations of what others changed by; a rank that changed by less has not visibly changed."""


@dataclass(frozen=True)
class Group:
    """Ranks that became slow together."""

    columns: tuple[int, ...]
    first: int
    """Number of the first slow step, roughly."""
    changed: Changed
    before: Slowdown | None = None
    """Its description of last time."""


def groups(rows: Rows, signals: Sequence[Signal], before: Sequence[Slowdown]) -> list[Group]:
    """Group the ranks that are slow against the others.

    before: the slowdowns of last time.
    """
    column = {rank: place for place, rank in enumerate(rows.world.ranks)}
    found = [
        Group(tuple(column[rank] for rank in one.ranks), one.since, one.changed, one)
        for one in before
        if one.until is None and one.scope not in {"all", "rotating"} and all(rank in column for rank in one.ranks)
    ]
    of_ranks = [signal for signal in signals if signal.rank in column and not _has_ended(signal, before)]
    taken = {place for group in found for place in group.columns}
    for together in _clusters(of_ranks):
        first = round(float(np.median([signal.first for signal in together])))
        up, down = (
            sorted({column[one.rank] for one in together if one.direction == way and one.rank is not None} - taken)
            for way in ("up", "down")
        )
        group = _changed(rows, first, up, down)
        new = set(group.columns) - taken if group else set()
        if not group or not new:
            continue
        joins = next((one for one in found if abs(one.first - first) <= TOGETHER_STEPS), None)
        if joins is not None:
            found[found.index(joins)] = replace(joins, columns=tuple(sorted({*joins.columns, *new})))
        else:
            found.append(replace(group, columns=tuple(sorted(new))))
        taken |= new
    return found


def _has_ended(signal: Signal, before: Sequence[Slowdown]) -> bool:
    """Return whether a signal is of a slowdown that has ended since."""
    return any(
        signal.rank in one.ranks and one.since - TOGETHER_STEPS <= signal.first <= one.until
        for one in before
        if one.until is not None
    )


def _clusters(signals: Sequence[Signal]) -> Iterator[list[Signal]]:
    """Group signals whose first steps are close."""
    cluster: list[Signal] = []
    for signal in sorted(signals, key=lambda one: one.first):
        if cluster and signal.first - cluster[-1].first > TOGETHER_STEPS:
            yield cluster
            cluster = []
        cluster.append(signal)
    if cluster:
        yield cluster


def _changed(rows: Rows, first: int, up: list[int], down: list[int]) -> Group | None:
    """Decide who became slower at a step, of ranks that went up and down against the others."""
    ranks = len(rows.world.ranks)
    rise = _rises(rows, first, ranks)
    others = np.delete(np.arange(ranks), up or down)
    if not len(others) or not (up or down):
        return None
    few = Group(tuple(up), first, "unknown") if 0 < len(up) <= ranks // 2 else None
    if rise is None:
        return few
    unclear = UNSURE * median(np.abs(rise[others] - median(rise[others])))
    mine, theirs = median(rise[up or down]), median(rise[others])
    if abs(mine - theirs) <= unclear:
        return few
    if up:
        return Group(tuple(up), first, "these" if mine > -theirs else "others")
    # Most ranks are slower than before, and those that went down are as they were.
    rose = others[rise[others] > (theirs - mine) / 4]
    return Group(tuple(rose.tolist()), first, "these") if theirs > -mine and len(rose) > ranks // 2 else None


def _rises(rows: Rows, first: int, ranks: int) -> Floats | None:
    """[R] Return by how much the own time of each rank rose at a step; None: nothing is known from before."""
    at, every = rows.index(first), list(range(ranks))
    if at < FEWEST_ROWS or len(rows) - at < FEWEST_ROWS:
        return None
    begin, end = min(at - 1, rows.index(first - COMPARED_STEPS)), max(at + 1, rows.index(first + COMPARED_STEPS))
    before, after = (rows.phases_ms(every, *part).sum(axis=2) for part in ((begin, at), (at, end)))
    rises: Floats = medians(after.T) - medians(before.T)
    return rises


def scope(columns: Sequence[int], ranks: Sequence[int], hosts: Mapping[int, str]) -> Scope:
    """Name what the ranks in these columns are: one, all of some hosts, or several."""
    if len(columns) == 1:
        return "rank"
    mine = {hosts.get(ranks[place]) for place in columns}
    rest = {hosts.get(ranks[place]) for place in range(len(ranks)) if place not in set(columns)}
    return "ranks" if None in mine or mine & rest or len(columns) == len(mine) else "host"


def peers(rows: Rows, slow: Sequence[Group]) -> Ints:
    """Return the columns that no group has: the ranks that others are compared with."""
    return np.delete(np.arange(len(rows.world.ranks)), [place for group in slow for place in group.columns])
