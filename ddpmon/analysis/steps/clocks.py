"""Brings the clocks of several hosts to one of them, by the moments at which gradient synchronisations end.

Nothing assumes that clocks are synchronised: hosts may have booted days apart. A gradient synchronisation ends at the
same moment everywhere, and each host tells when that was by its own clock, a little late now and then, because a thread
that may go on has to be woken first. Of a host's ranks the first to go on is taken. The differences of two hosts' ends
lie along a line: an offset, and a drift of some millionths. The line is fitted to the latest of them by medians
(Theil, 1950; Sen, 1968, with pairs half of the points apart), which a quarter of outliers does not move.

How certain that is, is told in two ways. If synchronisations do end everywhere at once, the line is off by no more than
ends stray about it. Whatever they do, no rank can leave an all-reduce before the last one has arrived: each step bounds
the offset from both sides, by the arrivals at one host and the ends at the other. A link that has one host always end
later moves the line, unseen, within those bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.steps.table import ARRIVAL, END, KIND, Rows
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import SYNC_GRADIENTS, ClockView
from ddpmon.plain import utf8

KEPT = 512
"""Ends that a fit is made of: some minutes of most runs, in which clocks drift alike."""
BLOCK = 64
"""Steps that share a fit: a drift of 100 millionths is 0.6 ms in 6 s."""
FEWEST = 32
"""Ends that tell a drift, at least: the slope of fewer would be that of a thread that was woken late."""
MOST_DRIFT = 1e-3
"""A fitted drift is cut to that: no clock that is disciplined at all is as far off."""
JUMPED = 8
"""Ends in a row that tell a jump of the clock: one may be late, eight by chance are not."""
JUMP_US = Threshold(
    100_000,
    of="µs that each of the last ends is off the line",
    why="A judgement: far more than waking a thread takes; the clock stood still, as on a machine that was suspended.",
)
STRAYS = 0.68, 2.0
"""The share of ends that lie so far from the line, and how many times that it may be off: two standard deviations where
ends stray normally. What a third of ends does, as threads that were woken very late, does not count."""
RESOLUTION_US = 10
"""Ends are told in whole µs by several clocks: no line is told to be better."""
_AT, _ADDED, _LEAST, _MOST = range(4)
"""Columns of points: a moment by a host's clock, what to add to it by the ends, and the least and most that can be."""


class Clocks:
    """The lines of all hosts to one of them, learned from step to step."""

    def __init__(self, reference: str = "") -> None:
        """reference: the host whose clock is the world's; one that has no rank is replaced by the first rank's."""
        self.reference = reference
        self._points: dict[str, Ints] = {}
        """[N, 4] By host: when synchronisations ended by its clock, what to add to that, and bounds of it."""

    def offsets_us(self, rows: Rows, hosts: Mapping[int, str]) -> Ints | None:
        """[S, R] What to add to the times of ranks, by their hosts; None where all share a clock.

        Rows must come in the order of their steps: the fit follows them.
        """
        names = [hosts.get(rank, "") for rank in rows.ranks]
        if len(set(names)) < 2:
            return None
        if self.reference not in names:
            self.reference = names[0]
            self._points.clear()
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        host_of = np.array([numbers[name] for name in names])
        listed, reference = list(numbers), numbers[self.reference]
        syncs, at = _syncs(rows, host_of), rows.number("end_us")
        offsets = np.zeros(at.shape, np.int64)
        for first in range(0, len(rows), BLOCK):
            block = slice(first, first + BLOCK)
            added, fitted = self._added(syncs[:, block], at[block], host_of, listed, reference)
            offsets[block, fitted] = added
        return offsets

    def agreements(self) -> list[ClockView]:
        """Of each host but the reference, as far as anything was learned of it."""
        return [_agreement(host, self.reference, points) for host, points in self._points.items() if len(points)]

    def _added(self, syncs: Ints, at: Ints, host_of: Ints, names: Sequence[str], reference: int) -> tuple[Ints, Bools]:
        """What to add in a block of steps to the times of ranks whose hosts' lines are there, and which these are.

        syncs: [2, S, H] as `_syncs` has them. at: [S, R] times of ranks. host_of: [R] the number of each rank's host.
        """
        ends, arrivals = syncs
        alike: dict[tuple[int, bytes], list[int]] = {}
        for host, name in enumerate(names):
            if host != reference:
                both = (ends[:, host] != NEVER) & (ends[:, reference] != NEVER)
                alike.setdefault((len(self._points.get(name, ())), both.tobytes()), []).append(host)
        lines = _Lines(len(names))
        # Hosts that sent of the same synchronisations are worked out together: there may be thousands.
        for (count, both_bytes), group in alike.items():
            both = np.frombuffer(both_bytes, bool)
            before = [self._points[names[host]] for host in group] if count else [NO_POINTS] * len(group)
            mine, theirs = ends[both][:, group].T, ends[both][:, [reference]].T
            least, most = arrivals[both][:, [reference]].T - mine, theirs - arrivals[both][:, group].T
            new = np.stack([mine, theirs - mine, least, most], axis=-1)
            tables = np.concatenate([np.stack(before), new], axis=1)[:, -KEPT:]
            jumped = _jumped(tables)
            for cut, chosen in ((0, ~jumped), (-JUMPED, jumped)):
                if tables.shape[1] and chosen.any():
                    lines.fit(np.array(group)[chosen], tables[chosen, cut:])
            for host, table, has_jumped in zip(group, tables, jumped.tolist(), strict=True):
                self._points[names[host]] = table[-JUMPED:] if has_jumped else table
        fitted = lines.fitted[host_of]
        return lines.at(at[:, fitted], host_of[fitted]), fitted


NEVER = np.iinfo(np.int64).max
"""In the place of an end where there was no gradient synchronisation."""
NO_POINTS = np.empty((0, 4), np.int64)


class _Lines:
    """What to add to each host's clock at a moment of it. Times count from one near by: they are large numbers."""

    def __init__(self, hosts: int) -> None:
        self.fitted: Bools = np.zeros(hosts, bool)
        self._origin_us, self._base_us = np.zeros(hosts, np.int64), np.zeros(hosts, np.int64)
        self._offset_us, self.drift = np.zeros(hosts), np.zeros(hosts)

    def fit(self, hosts: Ints, tables: Ints) -> None:
        """Lay the lines of some hosts through [H, N, 4] points, at least one each."""
        self.fitted[hosts] = True
        self._origin_us[hosts], self._base_us[hosts] = tables[:, -1, _AT], tables[:, -1, _ADDED]
        self.drift[hosts], self._offset_us[hosts] = _fitted(tables)

    def at(self, time_us: Ints, host_of: Ints) -> Ints:
        """[S, N] of times of N ranks. host_of: [N]"""
        since = time_us - self._origin_us[host_of]
        added = np.round(self._offset_us[host_of] + self.drift[host_of] * since).astype(np.int64)
        together: Ints = self._base_us[host_of] + added
        return together


def _syncs(rows: Rows, host_of: Ints) -> Ints:
    """[2, S, H] When each host's first rank left a step's gradient synchronisation, and when its last one arrived.

    NEVER in the place of an end where there was none.
    """
    ends, arrivals = np.full(rows.table.size, NEVER), np.full(rows.table.size, -NEVER)
    owner, syncs = rows.syncs()
    gradients = syncs[:, KIND] == SYNC_GRADIENTS
    owner = owner[gradients]
    begin = (rows.number("end_us") - rows.number("length_us")).ravel()[owner]
    # Of several in a step the last one stays.
    arrivals[owner], ends[owner] = begin + syncs[gradients, ARRIVAL], begin + syncs[gradients, END]
    order = np.argsort(host_of, kind="stable")
    begins = np.flatnonzero(np.diff(host_of[order], prepend=-1))
    shape = rows.table.shape
    return np.stack(
        [
            np.minimum.reduceat(ends.reshape(shape)[:, order], begins, axis=1),
            np.maximum.reduceat(arrivals.reshape(shape)[:, order], begins, axis=1),
        ]
    )


def _jumped(tables: Ints) -> Bools:
    """[H] Whether each clock's latest ends are off the line through those before, all to one side."""
    if tables.shape[1] < 2 * JUMPED:
        return np.zeros(len(tables), bool)
    lines, hosts = _Lines(len(tables)), np.arange(len(tables))
    lines.fit(hosts, tables[:, :-JUMPED])
    latest = tables[:, -JUMPED:]
    off = latest[..., _ADDED] - lines.at(latest[..., _AT].T, hosts).T
    one_side: Bools = np.maximum(off.min(axis=1), -off.max(axis=1)) > JUMP_US.enter
    return one_side


def _fitted(tables: Ints) -> tuple[Floats, Floats]:
    """Drift and offset [H] of the lines through [H, N, 4] points, in what their last points are the origin of."""
    at: Floats = (tables[..., _AT] - tables[:, -1:, _AT]).astype(np.float64)
    added: Floats = (tables[..., _ADDED] - tables[:, -1:, _ADDED]).astype(np.float64)
    drift = np.zeros(len(tables))
    half = at.shape[1] // 2
    if at.shape[1] >= FEWEST:
        run = at[:, half:] - at[:, : at.shape[1] - half]
        rise = added[:, half:] - added[:, : at.shape[1] - half]
        if (run > 0).all():
            drift = np.median(rise / run, axis=1)
        else:
            for host, (one_run, one_rise) in enumerate(zip(run, rise, strict=True)):
                rises = one_run > 0
                drift[host] = np.median(one_rise[rises] / one_run[rises]) if rises.any() else 0.0
        drift = np.clip(drift, -MOST_DRIFT, MOST_DRIFT)
    return drift, np.median(added - drift[:, None] * at, axis=1)


def _agreement(host: str, reference: str, points: Ints) -> ClockView:
    line = _Lines(1)
    line.fit(np.array([0]), points[None])
    along = line.at(points[:, [_AT]], np.array([0]))[:, 0]
    share, times = STRAYS
    strays = times * float(np.quantile(np.abs(points[:, _ADDED] - along), share))
    least, most = int((points[:, _LEAST] - along).max()), int((points[:, _MOST] - along).min())
    surely = max(-least, most) if least <= 0 <= most else None
    within = max(RESOLUTION_US, math.ceil(strays))
    return ClockView(
        utf8(host),
        utf8(reference),
        int(along[-1]) / 1e6,
        float(line.drift[0]) * 1e6,
        (within if surely is None else min(within, max(RESOLUTION_US, surely))) / 1e3,
        None if surely is None else surely / 1e3,
    )
