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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.steps.alignment import Rows
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import SYNC_GRADIENTS, Step

KEPT = 512
"""Ends that a fit is made of: some minutes of most runs, in which clocks drift alike."""
BLOCK = 64
"""Steps that share a fit: a drift of 100 millionths is 0.6 ms in 6 s."""
FEWEST = Threshold(
    32,
    of="ends of gradient synchronisations that two hosts both sent",
    why="A judgement: fewer tell an offset, but no drift; their slope would be that of a thread that was woken late.",
)
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


@dataclass(frozen=True)
class Agreement:
    """How well a host's clock is known beside the reference's."""

    host: str
    reference: str
    offset_us: int
    """To be added to its clock, at its latest step."""
    drift_ppm: float
    """How much more of that there is, a second."""
    within_us: int
    """That is right to so much if synchronisations end everywhere at once, give or take what a thread takes to wake."""
    surely_us: int | None
    """That is right to so much because nobody leaves before all have arrived; None: arrivals and ends tell no bound."""
    ends: int
    """That it was learned from."""


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
        offsets = np.zeros((len(rows.steps), len(names)), np.int64)
        columns: dict[str, list[int]] = {}
        for column, name in enumerate(names):
            columns.setdefault(name, []).append(column)
        for first in range(0, len(rows.steps), BLOCK):
            block = rows.steps[first : first + BLOCK]
            ends = _ends(block, names)
            for host in ends.keys() - {self.reference}:
                earlier = self._points.get(host, np.empty((0, 4), np.int64))
                points = self._points[host] = _with_pairs(earlier, ends[host], ends[self.reference])
                if len(points):
                    at = np.array([[row[column].end_us for column in columns[host]] for row in block], np.int64)
                    offsets[first : first + len(block), columns[host]] = _line(points).at(at)
        return offsets

    def agreements(self) -> list[Agreement]:
        """Of each host but the reference, as far as anything was learned of it."""
        return [_agreement(host, self.reference, points) for host, points in self._points.items() if len(points)]


class _Line:
    """What to add to a clock, at a moment of that clock. Times count from a moment near by: they are large numbers."""

    def __init__(self, origin_us: int, base_us: int, offset_us: float, drift: float) -> None:
        self.origin_us, self.base_us, self.offset_us, self.drift = origin_us, base_us, offset_us, drift

    def at(self, time_us: Ints) -> Ints:
        added: Ints = self.base_us + np.round(self.offset_us + self.drift * (time_us - self.origin_us)).astype(np.int64)
        return added


class _Sync(NamedTuple):
    """A gradient synchronisation, by the clock of a host."""

    first_end_us: int
    last_arrival_us: int


def _ends(block: Sequence[Sequence[Step]], names: Sequence[str]) -> dict[str, list[_Sync | None]]:
    """By host, when its ranks arrived at each step's gradient synchronisation and left it; None: there was none."""
    ends: dict[str, list[_Sync | None]] = {name: [] for name in names}
    for row in block:
        of_row: dict[str, _Sync] = {}
        for name, step in zip(names, row, strict=True):
            last = next((sync for sync in reversed(step.syncs) if sync.kind == SYNC_GRADIENTS), None)
            if last is not None:
                begin = step.end_us - step.length_us
                mine = _Sync(begin + last.end_us, begin + last.arrival_us)
                others = of_row.get(name, mine)
                of_row[name] = _Sync(min(mine[0], others[0]), max(mine[1], others[1]))
        for name, of_host in ends.items():
            of_host.append(of_row.get(name))
    return ends


def _with_pairs(points: Ints, ends: Sequence[_Sync | None], reference: Sequence[_Sync | None]) -> Ints:
    """The points with the differences of two hosts' ends, without the old ones where the clock has jumped."""
    new = [
        (
            mine.first_end_us,
            theirs.first_end_us - mine.first_end_us,
            theirs.last_arrival_us - mine.first_end_us,
            theirs.first_end_us - mine.last_arrival_us,
        )
        for mine, theirs in zip(ends, reference, strict=True)
        if mine is not None and theirs is not None
    ]
    table = np.concatenate([points, np.array(new, np.int64).reshape(-1, 4)])[-KEPT:]
    if len(table) < 2 * JUMPED:
        return table
    before, latest = table[:-JUMPED], table[-JUMPED:]
    off = latest[:, _ADDED] - _line(before).at(latest[:, _AT])
    return latest if (off > JUMP_US.enter).all() or (off < -JUMP_US.enter).all() else table


def _agreement(host: str, reference: str, points: Ints) -> Agreement:
    line = _line(points)
    along = line.at(points[:, _AT])
    share, times = STRAYS
    strays = times * float(np.quantile(np.abs(points[:, _ADDED] - along), share))
    least, most = int((points[:, _LEAST] - along).max()), int((points[:, _MOST] - along).min())
    surely = max(-least, most) if least <= 0 <= most else None
    within = max(RESOLUTION_US, math.ceil(strays))
    return Agreement(
        host,
        reference,
        int(along[-1]),
        line.drift * 1e6,
        within if surely is None else min(within, max(RESOLUTION_US, surely)),
        surely,
        len(points),
    )


def _line(table: Ints) -> _Line:
    """The line through [N, 4] points, at least one."""
    origin, base = int(table[-1, _AT]), int(table[-1, _ADDED])
    at: Floats = (table[:, _AT] - origin).astype(np.float64)
    added: Floats = (table[:, _ADDED] - base).astype(np.float64)
    drift = 0.0
    half = len(table) // 2
    if FEWEST.reached(len(table)):
        run = at[half:] - at[: len(at) - half]
        rise = added[half:] - added[: len(added) - half]
        drift = float(np.clip(np.median(rise[run > 0] / run[run > 0]), -MOST_DRIFT, MOST_DRIFT)) if run.any() else 0.0
    return _Line(origin, base, float(np.median(added - drift * at)), drift)
