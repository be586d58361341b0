"""Decide which ranks changed, by what each of them took before: these, the others, or all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
    new_of_rank: dict[int, Signal] = {}
    for signal in sorted(signals, key=lambda one: (one.up, one.z)):
        # Only own time shows that a rank got faster. Its phases, less their share of it, then seem to get slower.
        if signal.rank in column and column[signal.rank] not in taken and not _is_shadow(signal, signals):
            new_of_rank[column[signal.rank]] = signal
    changes = _changes(rows, sorted(new_of_rank.items(), key=lambda one: -one[1].z))
    for together in _clusters([change for change in changes if not _has_ended(change, rows, before)]):
        first = round(float(np.median([change.step for change in together])))
        up, down = (sorted(change.column for change in together if change.up is way) for way in (True, False))
        phase = next((change.phase for change in together if change.phase), None)
        group = _changed(rows, first, up, down)
        new = set(group.columns) - taken if group else set()
        if not group or not new:
            continue
        near = [one for one in found if abs(one.first - first) <= TOGETHER_STEPS]
        joins = next((one for one in near if phase is None or one.phase in {phase, None}), None)
        if joins is not None:
            found[found.index(joins)] = replace(joins, columns=tuple(sorted({*joins.columns, *new})))
        else:
            found.append(replace(group, columns=tuple(sorted(new)), phase=phase))
        taken |= new
    return found


def _is_shadow(signal: Signal, signals: Sequence[Signal]) -> bool:
    """Return whether a signal of a phase only shows that the own time of the same rank went down."""
    if signal.series == "own":
        return False
    return not signal.up or any(
        other.rank == signal.rank and other.series == "own" and not other.up
        for other in signals
        if abs(other.step - signal.step) <= REFINED_STEPS
    )


@dataclass(frozen=True)
class _Change:
    """A rank that became slower or faster than the others."""

    column: int
    step: int
    up: bool
    phase: str | None
    """The phase that has nearly all of it, if one has."""


def _changes(rows: Rows, signals: Sequence[tuple[int, Signal]]) -> list[_Change]:
    """Return what signals of columns are of, the strongest first; further ones are as the strong ones near them."""
    changes = [_change(rows, column, signal) for column, signal in signals[:STRONGEST]]
    known = list(zip(signals, changes, strict=False))
    for column, signal in signals[STRONGEST:]:
        (_, near), change = min(
            known, key=lambda one: (one[0][1].up is not signal.up, abs(one[0][1].step - signal.step))
        )
        is_near = near.up is signal.up and abs(near.step - signal.step) <= REFINED_STEPS
        changes.append(replace(change, column=column) if is_near else _Change(column, signal.step, signal.up, None))
    return changes


def _change(rows: Rows, column: int, signal: Signal) -> _Change:
    """Return what a signal is of, with its most likely first step."""
    begin, end = rows.index(signal.step - REFINED_STEPS), rows.index(signal.step + REFINED_STEPS) + 1
    others = np.delete(np.arange(len(rows.world.ranks)), column)
    mine = rows.phases_ms([column], begin, end)[:, 0]
    excess = mine - medians(rows.phases_ms(others[:: -(-len(others) // PEERS)].tolist(), begin, end))
    excess = excess if signal.up else -excess
    at = rows.index(signal.step) - begin
    if signal.evidence == "change" and len(excess) >= FEWEST_ROWS:
        at = onset(excess.sum(axis=1), may_be_constant=True).index or at
    phases = excess[at:].mean(axis=0) - (excess[:at].mean(axis=0) if at >= FEWEST_ROWS else 0.0)
    plain = OF_ONE_PHASE.reached(float(phases.max() / max(phases.sum(), 1e-9)))
    step = int(rows.first[begin + at]) if at != rows.index(signal.step) - begin else signal.step
    return _Change(column, step, signal.up, OWN_PHASES[int(phases.argmax())] if plain else None)


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
