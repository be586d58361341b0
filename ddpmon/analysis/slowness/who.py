"""Decide which ranks are slow, from each rank's own times before and after a change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ddpmon.analysis.slowness.detector import Signal
from ddpmon.analysis.slowness.excess import sample_of_peers
from ddpmon.analysis.slowness.onset import find_onset
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import Changed, Scope, Slowdown
from ddpmon.analysis.statistics.arrays import Floats, Ints, row_medians, series_median
from ddpmon.analysis.statistics.excess import MOSTLY
from ddpmon.messages import OWN_PHASES

TOGETHER_STEPS = 16
"""Maximum distance in steps between first slow steps that count as one change, because noise shifts estimates by as
much."""
STRONGEST = 32
"""Number of strongest signals whose first steps are estimated one by one. If hundreds of ranks are slow, the other
ranks get the first step of the nearest of these signals."""
REFINED_STEPS = 200
"""Number of steps before and after a rough estimate that are searched for the first slow step."""
COMPARED_STEPS, FEWEST_ROWS = 60, 8
"""Number of steps before and after a change whose medians are compared, and minimum number of rows for a median."""
PLAIN = 6.0
"""Minimum distance, in median deviations (six are four standard deviations), between ranks that changed and ranks that
did not. At this distance, a rank without a signal can be assigned to one of the two."""


@dataclass(frozen=True)
class Group:
    """Ranks that became slow together."""

    columns: tuple[int, ...]
    first: int
    """Approximate number of the first slow step."""
    changed: Changed
    before: Slowdown | None = None
    """The group's description at the last judgement; None if the group is new."""
    phase: str | None = None
    """The phase that has nearly all of the excess, if one has."""


@dataclass(frozen=True)
class _Change:
    """A change of a rank compared with the others, or of all ranks compared with their past."""

    column: int | None
    """Column of the rank; None: all ranks."""
    step: int
    up: bool
    phase: str | None
    """The phase that has nearly all of the change, if one has."""


def slow_groups(rows: RunRows) -> list[Group]:
    """Return the groups of ranks that are slow compared with the others."""
    column = {rank: place for place, rank in enumerate(rows.world.ranks)}
    found = [
        Group(tuple(column[rank] for rank in one.ranks), one.since, one.changed, one, one.phase)
        for one in rows.before
        if one.until is None and one.is_of_ranks and all(rank in column for rank in one.ranks)
    ]
    taken = {place for group in found for place in group.columns}
    new: dict[int | None, list[Signal]] = {}
    for signal in sorted(rows.signals, key=lambda one: (not one.up, -one.z)):
        if signal.rank is None and signal.up and signal.series != "transfer":
            new.setdefault(None, []).append(signal)
        elif signal.rank in column and column[signal.rank] not in taken:
            new.setdefault(column[signal.rank], []).append(signal)
    for together in _clusters(_changes(rows, sorted(new.items(), key=lambda one: -one[1][0].z))):
        first = round(float(np.median([change.step for change in together])))
        phase = next((change.phase for change in together if change.phase), None)
        columns, changed = _slow_since(rows, first, phase, together)
        joined = set(columns) - taken
        if not joined or len(taken | joined) == len(column):
            continue  # No rank is new, or no rank would remain as a peer.
        near = [one for one in found if abs(one.first - first) <= TOGETHER_STEPS]
        alike = (one for one in near if phase is None or one.phase in {phase, None})
        joins = next((one for one in alike if _are_as_slow(rows, sorted(joined), one, taken)), None)
        if joins is not None:
            found[found.index(joins)] = replace(joins, columns=tuple(sorted({*joins.columns, *joined})))
        else:
            found.append(Group(tuple(sorted(joined)), first, changed, phase=phase))
        taken |= joined
    return found


def _are_as_slow(rows: RunRows, columns: Sequence[int], group: Group, taken: Collection[int]) -> bool:
    """Return whether each rank has at least half of the excess that a known group had at the last judgement."""
    least = group.before.excess_ms / 2 if group.before else 0.0
    return bool(_levels(rows, columns, group.first, taken).min() >= least)


def _levels(rows: RunRows, columns: Sequence[int], first: int, slow: Collection[int] = ()) -> Floats:
    """Return the mean excess [C] of some ranks in own time since a step, compared with the ranks that are not slow."""
    rest = np.delete(np.arange(len(rows.world.ranks)), [*columns, *slow])
    mine, theirs = (
        rows.phases_ms(some, rows.index(first)).sum(axis=2) for some in (columns, sample_of_peers(rest.tolist()))
    )
    levels: Floats = (mine - row_medians(theirs)[:, None]).mean(axis=0)
    return levels


def _changes(rows: RunRows, signals: Sequence[tuple[int | None, list[Signal]]]) -> list[_Change]:
    """Return the change that caused the signals of each column. Columns with the strongest signals come first.

    Only the strongest signals are analysed. Each other signal gets the change of the nearest strong signal.
    """
    known: list[tuple[Signal, _Change]] = []
    for column, candidates in signals[:STRONGEST]:
        found = ((signal, _change(rows, column, signal)) for signal in candidates)
        lasting = ((signal, change) for signal, change in found if change and not _has_ended(change, rows))
        known += list(islice(lasting, 1))
    changes = [change for _, change in known]
    for column, candidates in signals[STRONGEST:] if known else ():
        signal = max(candidates, key=lambda one: one.z)  # The strongest signal is in the phase that really changed.
        near, change = min(known, key=lambda one: (one[0].up is not signal.up, abs(one[0].step - signal.step)))
        is_near = near.up is signal.up and abs(near.step - signal.step) <= REFINED_STEPS
        changes.append(replace(change, column=column) if is_near else _Change(column, signal.step, signal.up, None))
    return changes


def _change(rows: RunRows, column: int | None, signal: Signal) -> _Change | None:
    """Return the change behind a signal, with its most likely first step; None if own time does not show it.

    The detector subtracts the usual share of own time from each phase, so a phase also seems slower if other phases
    became faster. Therefore the times themselves decide which phase changed, and in which direction.
    """
    near = rows.index(signal.step)
    begin = max(0, min(rows.index(signal.step - REFINED_STEPS), near - FEWEST_ROWS))
    end = min(len(rows), max(rows.index(signal.step + REFINED_STEPS), near + FEWEST_ROWS) + 1)
    ranks = np.arange(len(rows.world.ranks))
    others = ranks if column is None else np.delete(ranks, column)
    times = row_medians(rows.phases_ms(sample_of_peers(others.tolist()), begin, end))
    if column is not None:
        times = rows.phases_ms([column], begin, end)[:, 0] - times
    rough = at = near - begin
    change = _rise(times, at)
    place = int(np.abs(change).argmax())
    up = signal.up if signal.series == "own" else bool(change[place] > 0)
    way = 1 if up else -1
    if signal.evidence == "change" and len(times) >= FEWEST_ROWS:
        values = times.sum(axis=1) if signal.series == "own" else times[:, place]
        # Skip earlier slowdowns of the same ranks that have ended, so that the series has only one rise.
        over = [one.until for one in rows.before if one.until is not None and _is_of(one, column, rows)]
        skipped = max((rows.index(until) + 1 - begin for until in over if until < signal.step), default=0)
        skipped = min(max(skipped, 0), at)
        found = find_onset(way * values[skipped:], may_be_constant=True).index
        at = found + skipped if found or not begin + skipped else at
        change = _rise(times, at)
    if min(way * change.sum(), way * times[at:].mean(axis=0).sum()) < np.abs(change).max() / 2:
        return None
    change = way * change
    plain = MOSTLY.is_reached(float(change.max() / max(change.sum(), 1e-9)))
    step = signal.step if at == rough else int(rows.first[begin + at])
    return _Change(column, step, up, OWN_PHASES[int(change.argmax())] if plain else None)


def _rise(times: Floats, at: int) -> Floats:
    """Return the rise of each phase's mean at an index, [5]; if few values precede it, the mean after it."""
    rise: Floats = times[at:].mean(axis=0) - (times[:at].mean(axis=0) if at >= FEWEST_ROWS else 0.0)
    return rise


def _has_ended(change: _Change, rows: RunRows) -> bool:
    """Return whether a change belongs to a slowdown that has ended since."""
    return any(
        one.until is not None
        and one.since - TOGETHER_STEPS <= change.step <= one.until
        and _is_of(one, change.column, rows)
        for one in rows.before
    )


def _is_of(one: Slowdown, column: int | None, rows: RunRows) -> bool:
    """Return whether a slowdown concerns the rank in a column, or all ranks if the column is None."""
    return one.scope == "all" if column is None else rows.world.ranks[column] in one.ranks


def _clusters(changes: Sequence[_Change]) -> Iterator[list[_Change]]:
    """Yield groups of changes with close first steps. Changes in clearly different phases form separate groups."""
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


def _slow_since(
    rows: RunRows, first: int, phase: str | None, together: Sequence[_Change]
) -> tuple[Sequence[int], Changed]:
    """Return the columns that are slow since a step at which some ranks changed, and which ranks changed.

    Signals alone do not decide this, because some ranks that changed may have no signal yet. Each rank's times before
    and after the step show whether the slower ranks became slower or the others faster.
    """
    up, down = (
        sorted({one.column for one in together if one.up is way and one.column is not None}) for way in (True, False)
    )
    at = rows.index(first)
    if len(rows.world.ranks) == 2 and at >= FEWEST_ROWS > len(rows) - at:
        return (), "unknown"  # A few steps later, a comparison with their past shows which of the two changed.
    rises, strays = _rises(rows, at, phase)
    if not len(rises) or len(rises) in {len(up), len(down)}:
        # There is no past to compare with: name ranks with a signal that have at least half of the largest excess.
        if 1 < len(up) < len(rows.world.ranks):
            levels = _levels(rows, up, first)
            up = [column for column, level in zip(up, levels.tolist(), strict=True) if level >= levels.max() / 2]
        return up, "unknown"
    if up or down:
        high = series_median(rises[up] if up else np.delete(rises, down))
        low = series_median(rises[down] if down else np.delete(rises, up))
    else:  # Only the median of all ranks has a signal: at least a quarter of the ranks rose.
        high, low = float(np.quantile(rises, 0.75)), 0.0
    # The noise is the spread within each side (slow ranks, usual ranks). If it hides their difference, only signals
    # count.
    noise = max(strays, series_median(np.minimum(np.abs(rises - high), np.abs(rises - low))))
    apart = max((high - low) / 2, PLAIN * noise)
    # A rank that is close to neither side counts as not slow for now.
    is_slow, is_usual = rises - low >= apart, high - rises >= apart
    is_slow[up], is_slow[down] = True, False
    if high - low <= apart or not (up or down or is_usual.any()):
        return up, "unknown"
    slow = np.flatnonzero(is_slow).tolist()
    if high > -low:
        return slow, "these"
    # The other ranks became faster. If they are a minority, the ranks with unchanged speed are no stragglers.
    return (slow if 2 * len(slow) <= len(rises) else ()), "others"


def _rises(rows: RunRows, at: int, phase: str | None) -> tuple[Floats, float]:
    """Compare the medians of a phase, or of own time, of each rank before a row and from it on.

    Returns:
        [R] the rises, empty if there are too few rows before or after; and the standard error of a rise, expressed as a
        median deviation.

    """
    if at < FEWEST_ROWS or len(rows) - at < FEWEST_ROWS:
        return np.empty(0), 0.0
    first, every = int(rows.first[at]), list(range(len(rows.world.ranks)))
    begin, end = min(at - 1, rows.index(first - COMPARED_STEPS)), max(at + 1, rows.index(first + COMPARED_STEPS))
    chosen = slice(None) if phase is None else [OWN_PHASES.index(phase)]
    levels, variances = [], []
    for part in ((begin, at), (at, end)):
        values = rows.phases_ms(every, *part)[..., chosen].sum(axis=2).T
        levels.append(row_medians(values))
        # Variance of a median of normal values: pi/2 times the variance of their mean.
        variances.append(np.pi / 2 * np.square(row_medians(np.abs(values - levels[-1][:, None]))) / values.shape[1])
    return levels[1] - levels[0], series_median(np.sqrt(variances[0] + variances[1]))


def scope_of_columns(columns: Sequence[int], ranks: Sequence[int], hosts: Mapping[int, str]) -> Scope:
    """Return the scope of these columns: "rank" for one rank, "host" for all ranks of some hosts, otherwise "ranks"."""
    if len(columns) == 1:
        return "rank"
    mine = {hosts.get(ranks[place]) for place in columns}
    rest = {hosts.get(ranks[place]) for place in range(len(ranks)) if place not in set(columns)}
    return "ranks" if None in mine or mine & rest or len(columns) == len(mine) else "host"


def peer_columns(rows: RunRows, slow: Sequence[Group]) -> Ints:
    """Return the columns that are in no group: the ranks to compare others with."""
    return np.delete(np.arange(len(rows.world.ranks)), [place for group in slow for place in group.columns])
