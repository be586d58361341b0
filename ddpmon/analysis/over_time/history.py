"""Quantities of all ranks over the whole run in bounded memory: fine for recent steps, coarser for older ones.

The finest level has the last ROWS_PER_LEVEL rows. Every four neighbouring rows of a level also become one row of the
next, coarser level, which again has the last ROWS_PER_LEVEL rows. A million steps ago, there is one row per thousand
steps. A window is shown from the finest level that reaches back to its beginning. So it has at least
ROWS_PER_LEVEL / 4 rows, if there were so many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.messages import QUANTITIES, SAMPLE_SERIES, STEP_SERIES, Series, SeriesView

ROWS_PER_LEVEL = 1024
"""Number of latest rows that are stored at each level of resolution."""
MERGED = 4
"""Number of rows of a level that become one row of the next level."""
POINTS = 512
"""Maximum number of points of a series over the whole run."""
LOW_IS_WORST = frozenset(name for name in (*STEP_SERIES, *SAMPLE_SERIES) if QUANTITIES[name].worse == "low")
"""Quantities for which the rank with the lowest value is the worst. For example, the rank that waits least delays the
others."""
Rows = NDArray[np.void]
"""Rows of one level. `seconds` (since the run began) and `step` are those of the last step in a row. Each quantity has
`low`, `median` (the mean of medians in merged rows), `high`, the `worst` rank (-1: unknown) and `weight`, the number of
steps with a value. A NaN counts as the largest value, so that it stays visible."""


def row_type(quantities: int) -> np.dtype[np.void]:
    """Return the NumPy type of a row with this number of quantities."""
    each = [(name, "<f4", (quantities,)) for name in ("low", "median", "high", "weight")]
    return np.dtype([("seconds", "<f8"), ("step", "<i8"), ("worst", "<i4", (quantities,)), *each])


class Spread(NamedTuple):
    """Lowest, median and highest value over ranks in each row, and the worst rank (-1: no rank had a value)."""

    low: Floats
    median: Floats
    high: Floats
    worst: Ints
    weight: Bools


def rows_of(seconds: Floats, step: Ints, spreads: Sequence[Spread]) -> Rows:
    """Return rows made of the spreads of each quantity."""
    rows = np.zeros(len(seconds), row_type(len(spreads)))
    rows["seconds"], rows["step"] = seconds, step
    with np.errstate(over="ignore"):
        for place, each in enumerate(spreads):
            for name, values in each._asdict().items():
                rows[name][:, place] = values
    return rows


def row_spread(
    values: Floats, has_value: Bools | None = None, ranks: Sequence[int] = (), *, low_is_worst: bool = False
) -> Spread:
    """Return the spread of each row over its columns. A NaN is larger than all other values.

    Args:
        values: [S, R] One row per step.
        has_value: [S, R] True where there is a value; None: everywhere.
        ranks: Rank of each column; empty: no worst rank is named.
        low_is_worst: True if the rank with the lowest value is the worst; False if it is the rank with the highest.

    """
    count = np.full(len(values), values.shape[1]) if has_value is None else has_value.sum(axis=1)
    if has_value is not None:
        values = np.where(has_value, values, np.nan)  # Sorting moves NaN to the end, and the count excludes it.
    ordered = np.sort(values, axis=1)
    last = np.maximum(count - 1, 0)
    place = np.arange(len(values))
    with np.errstate(invalid="ignore", over="ignore"):
        median = ordered[place, last // 2] / 2 + ordered[place, count // 2 - (count == 0)] / 2
    worst = np.full(len(values), -1, np.int64)
    if len(ranks) > 1:
        least = np.where(np.isnan(values), np.inf, values)
        most = values if has_value is None else np.where(has_value, values, -np.inf)  # argmax returns the first NaN.
        worst = np.asarray(ranks)[least.argmin(axis=1) if low_is_worst else most.argmax(axis=1)]
        worst[count == 0] = -1
    return Spread(ordered[:, 0], median, ordered[place, last], worst, count > 0)


def merge_rows(rows: Rows, begins: Ints, low_is_worst: Bools) -> Rows:
    """Return a row for each group of neighbouring rows.

    Args:
        rows: The rows to merge.
        begins: Index of the first row of each group.
        low_is_worst: True for each quantity for which the lowest rank is the worst.

    """
    result = np.zeros(len(begins), rows.dtype)
    if not len(begins):
        return result
    lasts = np.append(begins[1:], len(rows)) - 1
    result["seconds"], result["step"] = rows["seconds"][lasts], rows["step"][lasts]
    low, high, weight = rows["low"], rows["high"], rows["weight"].astype(np.float64)
    has_value = weight > 0
    total = np.add.reduceat(weight, begins)
    result["weight"] = total
    result["low"] = np.fmin.reduceat(np.where(has_value, low, np.nan), begins)
    result["high"] = np.maximum.reduceat(np.where(has_value, high, -np.inf), begins)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        result["median"] = np.add.reduceat(np.where(has_value, rows["median"] * weight, 0.0), begins) / total
    badness = np.where(low_is_worst, -low, high)
    badness = np.where(
        has_value, np.where(np.isnan(badness), np.where(low_is_worst, -np.inf, np.inf), badness), -np.inf
    )
    most = np.repeat(np.maximum.reduceat(badness, begins), lasts - begins + 1, axis=0)
    result["worst"] = np.maximum.reduceat(np.where(has_value & (badness == most), rows["worst"], -1), begins)
    return result


@dataclass
class Resolution:
    """The rows of one resolution: the last ROWS_PER_LEVEL of the `count` rows that were added."""

    rows: Rows
    count: int = 0

    @property
    def is_complete(self) -> bool:
        """Return whether no row has been dropped."""
        return self.count == len(self.rows)

    @property
    def unmerged_rows(self) -> Rows:
        """Return the rows at the end that are not yet in a row of the next level."""
        return self.rows[len(self.rows) - self.count % MERGED :]


class SavedHistory(msgspec.Struct):
    """A history in the form that a recording stores: the count and the rows of each level."""

    names: list[str]
    levels: list[tuple[int, bytes]]


class History:
    """Quantities that are measured at the same moments, from the run's start on."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.recorded: set[str] = set()
        """Quantities that had a value at least once."""
        self._levels: list[Resolution] = []
        self._low_is_worst: Bools = np.array([name in LOW_IS_WORST for name in names])

    def add(self, rows: Rows) -> None:
        """Append further rows, in the order of time."""
        self._note_recorded(rows)
        rows["seconds"] = np.maximum.accumulate(np.maximum(rows["seconds"], self.last_s))
        place = 0
        while len(rows):
            if place == len(self._levels):
                self._levels.append(Resolution(rows[:0]))
            level = self._levels[place]
            place += 1
            together = np.concatenate([level.unmerged_rows, rows])
            level.rows = np.concatenate([level.rows, rows])[-ROWS_PER_LEVEL:]
            level.count += len(rows)
            begins = np.arange(len(together) // MERGED) * MERGED
            rows = merge_rows(together[: len(begins) * MERGED], begins, self._low_is_worst)

    def _note_recorded(self, rows: Rows) -> None:
        has_value: list[bool] = np.any(rows["weight"] > 0, axis=0).tolist()
        self.recorded |= {name for name, there in zip(self.names, has_value, strict=True) if there}

    @property
    def last_s(self) -> float:
        """Return the end of the last row in seconds; -inf if there are no rows."""
        return max((float(level.rows["seconds"][-1]) for level in self._levels if len(level.rows)), default=-math.inf)

    def between(self, begin_s: float, end_s: float, points: int) -> tuple[Rows, int]:
        """Return a stretch of time in `points` rows plus one row on each side, and the number of finest rows in each
        row.
        """
        if not self._levels:
            return np.zeros(0, row_type(len(self.names))), 1
        place = next((i for i, level in enumerate(self._levels) if _reaches(level, begin_s)), 0)
        level = self._levels[place]
        rows, first = level.rows, level.count - len(level.rows)
        if place:
            rest = np.concatenate([finer.unmerged_rows for finer in reversed(self._levels[:place])])
            rows = np.concatenate([rows, merge_rows(rest, np.arange(min(1, len(rest))), self._low_is_worst)])
        begin = max(0, int(np.searchsorted(rows["seconds"], begin_s)) - 1)
        end = min(len(rows), int(np.searchsorted(rows["seconds"], end_s, side="right")) + 1)
        if begin >= end:
            return rows[:0], MERGED**place
        group = math.ceil((end - begin) / points)
        # Align groups to fixed rows, so that a chart does not flicker as it scrolls.
        begins = np.arange(begin - (first + begin) % group, end, group)
        begins = np.maximum(begins, begin) - begin
        return merge_rows(rows[begin:end], begins, self._low_is_worst), group * MERGED**place

    def series(self, name: str) -> Series:
        """Return a quantity over the whole run."""
        whole = self.view(name, None, None, POINTS)
        return Series(whole.seconds, whole.low, whole.median, whole.high)

    def view(self, name: str, span_s: float | None, end_s: float | None, points: int) -> SeriesView:
        """Return a quantity over a stretch of the run.

        Args:
            name: One of the quantities.
            span_s: Length of the stretch; None: the whole run.
            end_s: End of the stretch; None: now.
            points: Maximum number of points.

        """
        place = self.names.index(name)
        first_s = next((float(level.rows[0]["seconds"]) for level in self._levels if level.is_complete), 0.0)
        end_s = self.last_s if end_s is None else end_s
        begin_s = -math.inf if span_s is None else end_s - span_s
        rows, merges = self.between(begin_s, end_s, points)
        low, median, high = (_values(rows, each, place) for each in ("low", "median", "high"))
        worst = [int(rank) if rank >= 0 else None for rank in rows["worst"][:, place]]
        return SeriesView(
            name, np.round(rows["seconds"], 3).tolist(), rows["step"].tolist(), low, median, high, worst, merges,
            round(first_s, 3), round(max(0.0, self.last_s), 3),
        )  # fmt: skip

    def as_of(self, seconds: float) -> History:
        """Return the history as it was at an earlier time, in seconds since the run started, as far as its rows reach
        back.
        """
        cut = History(self.names)
        above = 0
        for level in reversed(self._levels):
            kept = int(np.searchsorted(level.rows["seconds"], seconds, side="right"))
            count = level.count - len(level.rows) + kept
            if not kept or kept < count % MERGED:  # These rows were dropped; only coarser rows cover their time.
                kept, count = 0, above * MERGED
            if count:
                cut._levels.insert(0, Resolution(level.rows[:kept], count))
                cut._note_recorded(level.rows[:kept])
            above = count
        return cut

    def saved(self, most: int = ROWS_PER_LEVEL) -> SavedHistory:
        """Return the latest `most` rows of each level, for a recording."""
        levels = [(level.count, level.rows[-most:].tobytes()) for level in self._levels]
        return SavedHistory(list(self.names), levels)

    @classmethod
    def restored(cls, saved: SavedHistory, names: Sequence[str]) -> History:
        """Return the history that `saved` stored; raise ValueError if the data is invalid."""
        if saved.names != list(names):
            raise ValueError(f"a history of {saved.names} instead of {list(names)}")
        history = cls(names)
        for count, content in saved.levels:
            rows = np.frombuffer(content, row_type(len(names)))
            if not len(rows) <= min(count, ROWS_PER_LEVEL):
                raise ValueError(f"a history of {count} rows holds {len(rows)}")
            history._levels.append(Resolution(rows, count))
            history._note_recorded(rows)
        return history


def _reaches(level: Resolution, begin_s: float) -> bool:
    return level.is_complete or (len(level.rows) > 0 and float(level.rows[0]["seconds"]) <= begin_s)


def _values(rows: Rows, name: str, place: int) -> list[float | None]:
    """Return the values of a quantity; None where no rank had a value."""
    has_value = rows["weight"][:, place] > 0
    return [
        value if there else None for value, there in zip(rows[name][:, place].tolist(), has_value.tolist(), strict=True)
    ]
