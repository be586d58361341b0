"""Brings the clocks of several hosts to one of them, by the moments at which gradient synchronisations end.

Nothing assumes that clocks are synchronised: hosts may have booted days apart. A gradient synchronisation ends at the
same moment everywhere, and each host tells when that was by its own clock, a little late now and then, because a thread
that may go on has to be woken first. Of a host's ranks the first to go on is taken. The differences of two hosts' ends
lie along a line: an offset, and a drift of some millionths. The line is fitted to the latest of them by medians
(Theil, 1950; Sen, 1968, with pairs half of the points apart), which a quarter of outliers does not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
_AT, _ADDED = range(2)
"""Columns of points: a moment by a host's clock, and what to add to it."""


class Clocks:
    """The lines of all hosts to one of them, learned from step to step."""

    def __init__(self, reference: str = "") -> None:
        """reference: the host whose clock is the world's; one that has no rank is replaced by the first rank's."""
        self.reference = reference
        self._points: dict[str, Ints] = {}
        """[N, 2] By host: when synchronisations ended by its clock, and what to add to that."""

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
                earlier = self._points.get(host, np.empty((0, 2), np.int64))
                points = self._points[host] = _with_pairs(earlier, ends[host], ends[self.reference])
                if len(points):
                    at = np.array([[row[column].end_us for column in columns[host]] for row in block], np.int64)
                    offsets[first : first + len(block), columns[host]] = _line(points).at(at)
        return offsets


class _Line:
    """What to add to a clock, at a moment of that clock. Times count from a moment near by: they are large numbers."""

    def __init__(self, origin_us: int, base_us: int, offset_us: float, drift: float) -> None:
        self.origin_us, self.base_us, self.offset_us, self.drift = origin_us, base_us, offset_us, drift

    def at(self, time_us: Ints) -> Ints:
        added: Ints = self.base_us + np.round(self.offset_us + self.drift * (time_us - self.origin_us)).astype(np.int64)
        return added


def _ends(block: Sequence[Sequence[Step]], names: Sequence[str]) -> dict[str, list[int | None]]:
    """By host, when its first rank left the gradient synchronisation of each step; None where there was none."""
    ends: dict[str, list[int | None]] = {name: [] for name in names}
    for row in block:
        first: dict[str, int] = {}
        for name, step in zip(names, row, strict=True):
            last = next((sync.end_us for sync in reversed(step.syncs) if sync.kind == SYNC_GRADIENTS), None)
            if last is not None:
                end = step.end_us - step.length_us + last
                first[name] = min(end, first.get(name, end))
        for name, of_host in ends.items():
            of_host.append(first.get(name))
    return ends


def _with_pairs(points: Ints, ends: Sequence[int | None], reference: Sequence[int | None]) -> Ints:
    """The points with the differences of two hosts' ends, without the old ones where the clock has jumped."""
    pairs = zip(ends, reference, strict=True)
    new = [(mine, theirs - mine) for mine, theirs in pairs if mine is not None and theirs is not None]
    table = np.concatenate([points, np.array(new, np.int64).reshape(-1, 2)])[-KEPT:]
    if len(table) < 2 * JUMPED:
        return table
    before, latest = table[:-JUMPED], table[-JUMPED:]
    off = latest[:, _ADDED] - _line(before).at(latest[:, _AT])
    return latest if (off > JUMP_US.enter).all() or (off < -JUMP_US.enter).all() else table


def _line(table: Ints) -> _Line:
    """The line through [N, 2] points, at least one."""
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
