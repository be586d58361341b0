"""Decide which ranks changed, by what each of them took before: these, the others, or all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ddpmon.analysis.slowness.excess import PEERS
from ddpmon.analysis.slowness.onset import onset
from ddpmon.analysis.slowness.past import Rows
from ddpmon.analysis.slowness.signal import Signal
from ddpmon.analysis.slowness.slowdown import Changed, Scope, Slowdown
from ddpmon.analysis.statistics.arrays import Floats, Ints, median, medians
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

OF_ONE_PHASE = Threshold(
    0.8,
    of="share of a rank's excess in one phase, so that ranks slow in another phase have another fault",
    why="What makes all phases longer, as low clocks do, has half of it in one; a slow loader has all of it in data.",
)
TOGETHER_STEPS = 16
"""Steps that first steps may lie apart to be one change: in noise they are off by as much."""
STRONGEST = 32
"""Signals whose first steps are found one by one: of hundreds of slow ranks, the others became slow with these."""
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
    phase: str | None = None
    """The phase that has nearly all of the excess, if one has."""


def groups(rows: Rows, signals: Sequence[Signal], before: Sequence[Slowdown]) -> list[Group]:
    """Group the ranks that are slow against the others.

    before: the slowdowns of last time.
    """
    column = {rank: place for place, rank in enumerate(rows.world.ranks)}
    found = [
        Group(tuple(column[rank] for rank in one.ranks), one.since, one.changed, one, one.phase)
        for one in before
        if one.until is None and one.scope not in {"all", "rotating"} and all(rank in column for rank in one.ranks)
    ]
    taken = {place for group in found for place in group.columns}
    new: dict[int, list[Signal]] = {}
    for signal in sorted(signals, key=lambda one: (not one.up, -one.z)):
        # Only own time shows that a rank got faster.
        shows = (signal.up or signal.series == "own") and not _is_explained(signal, before)
        if shows and signal.rank in column and column[signal.rank] not in taken:
            new.setdefault(column[signal.rank], []).append(signal)
    for together in _clusters(_changes(rows, sorted(new.items(), key=lambda one: -one[1][0].z), before)):
        first = round(float(np.median([change.step for change in together])))
        up, down = (sorted(change.column for change in together if change.up is way) for way in (True, False))
        phase = next((change.phase for change in together if change.phase), None)
        group = _changed(rows, first, up, down)
        joined = set(group.columns) - taken if group else set()
        if not group or not joined or len(taken | joined) == len(column):
            continue  # none, or nobody would be left to compare with
        near = [one for one in found if abs(one.first - first) <= TOGETHER_STEPS]
        joins = next((one for one in near if phase is None or one.phase in {phase, None}), None)
        if joins is not None:
            found[found.index(joins)] = replace(joins, columns=tuple(sorted({*joins.columns, *joined})))
        else:
            found.append(replace(group, columns=tuple(sorted(joined)), phase=phase))
        taken |= joined
    return found


def _is_explained(signal: Signal, before: Sequence[Slowdown]) -> bool:
    """Return whether a mean since the start is high because the rank was slow for a while."""
    return signal.evidence == "start" and any(
        signal.rank in one.ranks and one.until is not None and one.since <= signal.found for one in before
    )


@dataclass(frozen=True)
class _Change:
    """A rank that became slower or faster than the others."""

    column: int
    step: int
    up: bool
    phase: str | None
    """The phase that has nearly all of it, if one has."""


def _changes(rows: Rows, signals: Sequence[tuple[int, list[Signal]]], before: Sequence[Slowdown]) -> list[_Change]:
    """Return what signals of columns are of, the strongest first; further ones are as the strong ones near them."""
    known: list[tuple[Signal, _Change]] = []
    for column, candidates in signals[:STRONGEST]:
        found = ((signal, _change(rows, column, signal)) for signal in candidates)
        lasting = ((signal, change) for signal, change in found if change and not _has_ended(change, rows, before))
        known += list(islice(lasting, 1))
    changes = [change for _, change in known]
    for column, (signal, *_) in signals[STRONGEST:] if known else ():
        near, change = min(known, key=lambda one: (one[0].up is not signal.up, abs(one[0].step - signal.step)))
        is_near = near.up is signal.up and abs(near.step - signal.step) <= REFINED_STEPS
        changes.append(replace(change, column=column) if is_near else _Change(column, signal.step, signal.up, None))
    return changes


def _change(rows: Rows, column: int, signal: Signal) -> _Change | None:
    """Return what a signal is of, with its most likely first step; None: own time does not show it.

    Phases are tested less their share of own time, so that one seems slower where the others became faster.
    """
    begin, end = rows.index(signal.step - REFINED_STEPS), rows.index(signal.step + REFINED_STEPS) + 1
    others = np.delete(np.arange(len(rows.world.ranks)), column)
    mine = rows.phases_ms([column], begin, end)[:, 0]
    excess = mine - medians(rows.phases_ms(others[:: -(-len(others) // PEERS)].tolist(), begin, end))
    excess = excess if signal.up else -excess
    at = rows.index(signal.step) - begin
    phases = _rise(excess, at)
    if min(phases.sum(), excess[at:].mean(axis=0).sum()) < phases.max() / 2:
        return None
    if signal.evidence == "change" and len(excess) >= FEWEST_ROWS:
        at = onset(excess.sum(axis=1), may_be_constant=True).index or at
        phases = _rise(excess, at)
    plain = OF_ONE_PHASE.reached(float(phases.max() / max(phases.sum(), 1e-9)))
    step = int(rows.first[begin + at]) if at != rows.index(signal.step) - begin else signal.step
    return _Change(column, step, signal.up, OWN_PHASES[int(phases.argmax())] if plain else None)


def _rise(excess: Floats, at: int) -> Floats:
    """[5] Return by how much the mean excess in each phase rose at an index, or its level where little is before."""
    rise: Floats = excess[at:].mean(axis=0) - (excess[:at].mean(axis=0) if at >= FEWEST_ROWS else 0.0)
    return rise


def _has_ended(change: _Change, rows: Rows, before: Sequence[Slowdown]) -> bool:
    """Return whether a change belongs to a slowdown that has ended since."""
    return any(
        rows.world.ranks[change.column] in one.ranks and one.since - TOGETHER_STEPS <= change.step <= one.until
        for one in before
        if one.until is not None
    )


def _clusters(changes: Sequence[_Change]) -> Iterator[list[_Change]]:
    """Group changes whose first steps are close, unless they are plainly in different phases."""
    cluster: list[_Change] = []
    for change in [*sorted(changes, key=lambda one: one.step), None]:
        if cluster and (change is None or change.step - cluster[-1].step > TOGETHER_STEPS):
            phases = sorted({one.phase for one in cluster if one.phase})
            keys: list[str | None] = [*phases] or [None]
            for phase in keys:
                yield [one for one in cluster if one.phase == phase or (one.phase is None and phase == keys[0])]
            cluster = []
        if change is not None:
            cluster.append(change)


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
