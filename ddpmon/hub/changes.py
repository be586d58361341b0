"""Selects the changes of a snapshot to send to a viewer, so that answers do not grow with the number of ranks.

If at most MAX_OLD_RANKS ranks have changed, the answer contains all of them. Otherwise it contains the changed ranks
that the viewer's screen shows, the ranks with news such as their end, and MAX_OLD_RANKS others. Of these others, ranks
whose excess changed come first, then ranks that were sent longest ago. Numbers are rounded to as many digits as screens
show.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from ddpmon.messages import END_STATES, RankView, Series, Snapshot, ViewRequest, encode
from ddpmon.messages.changes import NO_SAMPLE, SAMPLE_COLUMNS, SERIES, Changed, Changes, Columns, Tail

MAX_OLD_RANKS = 192
"""Largest number of ranks in an answer that are neither shown nor have news. Each takes about 70 bytes."""
MOVED = 0.02
"""Smallest change of a rank's excess over its peers, as a fraction, at which the rank is sent before others."""
BITS = 12
"""Number of mantissa bits of a float that are sent, which is about four digits."""
_news = attrgetter("health", "stage", "exit", "host", "pid", "stack", "environment", "unmeasured", "window")
"""Reads the fields of a rank whose changes are sent at once."""
_ROW = tuple(name for name in RankView.__struct_fields__ if name not in {"rank", "sample"})
_SHOWN_WITH = {"clocks": "timeline"}
"""Large fields of a snapshot that only one screen shows: {field: field of ViewRequest that requests it}."""


class Sent:
    """Everything that was sent to a viewer. The object is immutable; viewers that received the same data share it."""

    def __init__(self) -> None:
        self._shot: Snapshot | None = None
        """Snapshot with the fields that the viewer has. Its ranks may be newer than those of the viewer."""
        self._rows: list[RankView] = []
        """Each rank's view as it was last sent."""
        self._at: list[int] = []
        """Version of the snapshot in which each rank was last sent."""
        self.is_whole = False
        """True if all that the viewer has is from one version of the snapshot."""

    def answer(self, shot: Snapshot, view_request: ViewRequest, base: int, level: int = 1) -> tuple[Sent, bytes]:
        """Return the viewer's state after an answer, and the answer as a frame that updates the viewer to a snapshot.

        Args:
            shot: The snapshot to send.
            view_request: The parts that the viewer's screen shows.
            base: The version that the viewer says it has, or 0.
            level: zlib's compression level, or 0 if the connection compresses.

        """
        after = Sent()
        after._rows, after._at = self._rows.copy(), self._at.copy()
        return after, after._answer(self._shot, shot, view_request, base, level)

    def _answer(self, last: Snapshot | None, shot: Snapshot, view_request: ViewRequest, base: int, level: int) -> bytes:
        if last is None or base != last.version or not base or len(shot.ranks) != len(self._rows):
            last = None
        self.is_whole = True
        if last is None:
            ranks: Iterable[int] = range(len(shot.ranks))
            self._rows = [RankView(rank) for rank in ranks]
            self._at = [0] * len(self._rows)
        else:
            ranks = self._ranks_to_send(shot, view_request)
        news = Changed(rows=self._columns(shot, list(ranks), exact=last is None))
        for name in Snapshot.__struct_fields__:
            value, before = getattr(shot, name), getattr(last, name, UNSET)
            if name == "ranks" or (name != "version" and value == before):
                continue
            if name in SERIES:
                setattr(news, name, _tail(Series() if last is None else before, value))
            elif last is None or name not in _SHOWN_WITH or getattr(view_request, _SHOWN_WITH[name]):
                setattr(news, name, value)
            else:
                shot = msgspec.structs.replace(shot, **{name: before})  # The viewer keeps the earlier value.
                self.is_whole = False
        self._shot = shot
        return encode(Changes(last.version if last else 0, shot.epoch, zlib.compress(encode(news), level)))

    def _ranks_to_send(self, shot: Snapshot, view_request: ViewRequest) -> list[int]:
        """Return the ranks to send, in ascending order."""
        rows = self._rows
        others = [rank for rank, view in enumerate(shot.ranks) if view != rows[rank]]
        if len(others) <= MAX_OLD_RANKS or shot.state in END_STATES:
            return others
        self.is_whole = False
        shown = _shown_ranks(view_request)
        due = [rank for rank in others if rank in shown or _has_news(rows[rank], shot.ranks[rank])]
        rest = set(others).difference(due)
        due += heapq.nsmallest(
            MAX_OLD_RANKS, rest, key=lambda rank: (not _moved(rows[rank], shot.ranks[rank]), self._at[rank], rank)
        )
        return sorted(due)

    def _columns(self, shot: Snapshot, ranks: list[int], *, exact: bool) -> Any:
        columns = Columns(ranks=ranks)
        views = [shot.ranks[rank] for rank in ranks]
        before = [self._rows[rank] for rank in ranks]
        for name in _ROW:
            _add_changed(columns, name, views, before, exact=exact)
        samples = [view.sample or NO_SAMPLE for view in views]
        samples_before = [view.sample or NO_SAMPLE for view in before]
        for name in SAMPLE_COLUMNS:
            _add_changed(columns, name, samples, samples_before, exact=exact)
        for rank, view in zip(ranks, views, strict=True):
            self._rows[rank], self._at[rank] = view, shot.version
        return columns


def _shown_ranks(view_request: ViewRequest) -> set[int]:
    """Return the ranks that a viewer's screen shows, according to its view request."""
    return {
        rank
        for part in (view_request.strips, view_request.samples, view_request.inspect)
        if part
        for rank in part.listed
    }


def _has_news(before: RankView, now: RankView) -> bool:
    return bool(_news(before) != _news(now))


def _moved(before: RankView, now: RankView) -> bool:
    return abs((now.over_median or 0.0) - (before.over_median or 0.0)) >= MOVED


def _tail(before: Any, now: Any) -> Tail:
    """Return the number of unchanged points of a series, and the points after them."""
    names = Series.__struct_fields__
    points = zip(*(getattr(series, name) for series in (before, now) for name in names), strict=False)
    kept = 0
    for point in points:
        if point[: len(names)] != point[len(names) :]:
            break
        kept += 1
    return Tail(kept, Series(*(getattr(now, name)[kept:] for name in names)))


def _add_changed(columns: Any, name: str, now: Sequence[Any], before: Sequence[Any], *, exact: bool) -> None:
    """Add the column of a field if its value has changed for any rank."""
    read = attrgetter(name)
    column = list(map(read, now))
    if column != list(map(read, before)):
        setattr(columns, name, _packed_column(name, column, exact=exact))


def _packed_column(name: str, column: list[Any], *, exact: bool) -> list[Any]:
    """Return a column as it is sent: rounded, unless `exact` is true."""
    if exact:
        return column
    if name == "phases_ms":
        flat = iter(_rounded([value for phases in column for value in phases or ()]))
        return [None if phases is None else tuple(next(flat) for _ in phases) for phases in column]
    return _rounded(column)


def _rounded(values: list[Any]) -> list[Any]:
    """Round floats to BITS bits, so that they compress well. A list with other values is returned unchanged."""
    if any(value is not None and type(value) is not float for value in values):
        return values
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    half, kept = np.uint64(1 << (51 - BITS)), np.uint64((1 << 64) - (1 << (52 - BITS)))
    shorter = np.where(np.isfinite(numbers), ((numbers.view(np.uint64) + half) & kept).view(np.float64), numbers)
    return [None if value is None else number for value, number in zip(values, shorter.tolist(), strict=True)]
