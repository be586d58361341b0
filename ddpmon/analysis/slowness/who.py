"""Decide which ranks changed, by what each of them took before: these, the others, or all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.analysis.slowness.onset import onset
from ddpmon.analysis.slowness.past import Rows
from ddpmon.analysis.slowness.slowdown import Changed, Scope, Signal, Slowdown
from ddpmon.analysis.slowness.stretches import PEERS
from ddpmon.analysis.statistics.arrays import Floats, Ints, median, medians

TOGETHER_STEPS = 16
"""Steps that first steps may lie apart to be one change: in noise they are off by as much."""
REFINED_STEPS = 200
"""Steps before and after a rough estimate among which the first step is found."""
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
    taken = {place for group in found for place in group.columns}
    new_of_rank: dict[int, Signal] = {}
    for signal in sorted(signals, key=lambda one: (one.up, one.z)):
        # Only own time shows that a rank got faster.
        if signal.rank in column and column[signal.rank] not in taken and (signal.up or signal.series == "own"):
            new_of_rank[column[signal.rank]] = signal
    changes = [(place, _refined(rows, place, signal)) for place, signal in new_of_rank.items()]
    for together in _clusters([(place, signal) for place, signal in changes if not _has_ended(signal, before)]):
        first = round(float(np.median([signal.step for _, signal in together])))
        up, down = (sorted(place for place, signal in together if signal.up is way) for way in (True, False))
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


def _refined(rows: Rows, column: int, signal: Signal) -> Signal:
    """Return a signal of a change with its most likely first step."""
    if signal.evidence != "change":
        return signal
    begin, end = rows.index(signal.step - REFINED_STEPS), rows.index(signal.step + REFINED_STEPS) + 1
    others = np.delete(np.arange(len(rows.world.ranks)), column)
    both = (rows.phases_ms(columns, begin, end) for columns in ([column], others[:: -(-len(others) // PEERS)].tolist()))
    mine, theirs = (medians(values.sum(axis=2)) for values in both)
    excess = mine - theirs if signal.up else theirs - mine
    found = onset(excess, may_be_constant=True) if len(excess) >= FEWEST_ROWS else None
    return replace(signal, step=int(rows.first[begin + found.index])) if found and found.index else signal


def _has_ended(signal: Signal, before: Sequence[Slowdown]) -> bool:
    """Return whether a signal is of a slowdown that has ended since."""
    return any(
        signal.rank in one.ranks and one.since - TOGETHER_STEPS <= signal.step <= one.until
        for one in before
        if one.until is not None
    )


def _clusters(changes: Sequence[tuple[int, Signal]]) -> Iterator[list[tuple[int, Signal]]]:
    """Group changes of columns whose first steps are close."""
    cluster: list[tuple[int, Signal]] = []
    for change in sorted(changes, key=lambda one: one[1].step):
        if cluster and change[1].step - cluster[-1][1].step > TOGETHER_STEPS:
            yield cluster
            cluster = []
        cluster.append(change)
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
