"""Selects what a viewer is sent of the next snapshot: not more than it can look at, however large the world.

Of the ranks an answer brings those that its screen shows, and all to which something happened; of the rest so many that
its size does not grow with the world: those first whose lateness moved, then those that were not sent for longest. A
world of up to ROWS ranks is always sent as it is. Numbers of ranks have the digits that screens show.
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

from ddpmon.messages import END_STATES, RankView, Series, Snapshot, Wish, encode
from ddpmon.messages.changes import NO_SAMPLE, SAMPLE_COLUMNS, SERIES, Changed, Changes, Columns, Tail

ROWS = 192
"""Ranks in an answer that are neither shown nor have news: some 70 bytes each."""
MOVED = 0.02
"""A share of its peers' own time by which a rank's moved: who looks at all ranks wants to see those first."""
BITS = 12
"""Bits of a number's fraction that are sent: four digits."""
_news = attrgetter("health", "stage", "exit", "host", "pid", "stack", "environment", "unmeasured", "window")
"""Fields of a rank whose changes are sent at once."""
_ROW = tuple(name for name in RankView.__struct_fields__ if name not in {"rank", "sample"})
_SHOWN_WITH = {"clocks": "timeline"}
"""Fields that grow with the world and that one screen shows: sent to whoever wishes for the part beside them."""


class Sent:
    """State of the viewers that were sent the same. It does not change: an answer makes another one."""

    def __init__(self) -> None:
        self._shot: Snapshot | None = None
        """The fields that they have; its ranks may be older."""
        self._rows: list[RankView] = []
        """Each rank as it was sent last."""
        self._at: list[int] = []
        """In which version."""
        self.is_whole = False
        """True if they have all of a snapshot as it was."""

    def answer(self, shot: Snapshot, wish: Wish, base: int, level: int = 1) -> tuple[Sent, bytes]:
        """Return what a viewer has then, and the frame that makes this snapshot of what it has.

        Args:
            shot: the snapshot that it is sent.
            wish: the parts that its screen shows.
            base: the version that it says it has, or 0.
            level: of compression; 0 where the connection compresses.

        """
        after = Sent()
        after._rows, after._at = self._rows.copy(), self._at.copy()
        return after, after._answer(self._shot, shot, wish, base, level)

    def _answer(self, last: Snapshot | None, shot: Snapshot, wish: Wish, base: int, level: int) -> bytes:
        if last is None or base != last.version or not base or len(shot.ranks) != len(self._rows):
            last = None
        self.is_whole = True
        if last is None:
            ranks: Iterable[int] = range(len(shot.ranks))
            self._rows = [RankView(rank) for rank in ranks]
            self._at = [0] * len(self._rows)
        else:
            ranks = self._due(shot, wish)
        news = Changed(rows=self._columns(shot, list(ranks), exact=last is None))
        for name in Snapshot.__struct_fields__:
            value, before = getattr(shot, name), getattr(last, name, UNSET)
            if name == "ranks" or (name != "version" and value == before):
                continue
            if name in SERIES:
                setattr(news, name, _tail(Series() if last is None else before, value))
            elif last is None or name not in _SHOWN_WITH or getattr(wish, _SHOWN_WITH[name]):
                setattr(news, name, value)
            else:
                shot = msgspec.structs.replace(shot, **{name: before})  # so it has the earlier ones
                self.is_whole = False
        self._shot = shot
        return encode(Changes(last.version if last else 0, shot.epoch, zlib.compress(encode(news), level)))

    def _due(self, shot: Snapshot, wish: Wish) -> list[int]:
        """The ranks that are sent, rising."""
        rows = self._rows
        others = [rank for rank, view in enumerate(shot.ranks) if view != rows[rank]]
        if len(others) <= ROWS or shot.state in END_STATES:
            return others
        self.is_whole = False
        shown = _shown(wish)
        due = [rank for rank in others if rank in shown or _has_news(rows[rank], shot.ranks[rank])]
        rest = set(others).difference(due)
        due += heapq.nsmallest(
            ROWS, rest, key=lambda rank: (not _moved(rows[rank], shot.ranks[rank]), self._at[rank], rank)
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


def _shown(wish: Wish) -> set[int]:
    """Ranks that the screen shows, as far as what it wishes for tells."""
    return {rank for part in (wish.strips, wish.samples, wish.inspect) if part for rank in part.listed}


def _has_news(before: RankView, now: RankView) -> bool:
    return bool(_news(before) != _news(now))


def _moved(before: RankView, now: RankView) -> bool:
    return abs((now.over_median or 0.0) - (before.over_median or 0.0)) >= MOVED


def _tail(before: Any, now: Any) -> Tail:
    """Return what is new of a series: its points are added at the end, until all are made fewer."""
    names = Series.__struct_fields__
    points = zip(*(getattr(series, name) for series in (before, now) for name in names), strict=False)
    kept = 0
    for point in points:
        if point[: len(names)] != point[len(names) :]:
            break
        kept += 1
    return Tail(kept, Series(*(getattr(now, name)[kept:] for name in names)))


def _add_changed(columns: Any, name: str, now: Sequence[Any], before: Sequence[Any], *, exact: bool) -> None:
    """Add the column of a field, if any rank has another value there than before."""
    read = attrgetter(name)
    column = list(map(read, now))
    if column != list(map(read, before)):
        setattr(columns, name, _packed(name, column, exact=exact))


def _packed(name: str, column: list[Any], *, exact: bool) -> list[Any]:
    """A column as it is sent. exact: with all digits."""
    if exact:
        return column
    if name == "phases_ms":
        flat = iter(_rounded([value for phases in column for value in phases or ()]))
        return [None if phases is None else tuple(next(flat) for _ in phases) for phases in column]
    return _rounded(column)


def _rounded(values: list[Any]) -> list[Any]:
    """Numbers whose other bits are zero, so that they compress; what are no measured numbers as it is."""
    if any(value is not None and type(value) is not float for value in values):
        return values
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    half, kept = np.uint64(1 << (51 - BITS)), np.uint64((1 << 64) - (1 << (52 - BITS)))
    shorter = np.where(np.isfinite(numbers), ((numbers.view(np.uint64) + half) & kept).view(np.float64), numbers)
    return [None if value is None else number for value, number in zip(values, shorter.tolist(), strict=True)]
