"""From a series over time to one value per column of dots, and the range that a chart shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ddpmon.tui.frame import finite

Values = Sequence[float | None]
Curve = list[float | None]


def mean(values: Sequence[float]) -> float:
    """The mean, without overflowing where the values are near the largest float."""
    return math.fsum(value / len(values) for value in values)


def curve(seconds: Sequence[float], values: Values, columns: int, reduce: Callable[[Sequence[float]], float]) -> Curve:
    """One value per column, the first and the last point at the edges.

    Points that fall into one column are reduced to one value; columns between two points are interpolated. A missing,
    nan or infinite value breaks the curve.
    """
    points = [(at, finite(value)) for at, value in zip(seconds, values, strict=False) if math.isfinite(at)]
    if not points or columns <= 0:
        return [None] * max(0, columns)
    start, end = points[0][0], points[-1][0]
    whole = end - start
    gathered: list[list[float]] = [[] for _ in range(columns)]
    broken = [False] * columns
    for at, value in points:
        share = (at - start) / whole if 0 < whole < math.inf else 0.0
        column = round((columns - 1) * min(1.0, max(0.0, share)))
        if value is None:
            broken[column] = True
        else:
            gathered[column].append(value)
    result: Curve = [reduce(values) if values else None for values in gathered]
    before: int | None = None
    for column, value in enumerate(result):
        if broken[column] and value is None:
            before = None
        if value is None:
            continue
        if before is not None and (left := result[before]) is not None:
            for between in range(before + 1, column):
                share = (between - before) / (column - before)
                result[between] = left * (1 - share) + value * share
        before = column
    return result


def limits(*series: Values) -> tuple[float, float] | None:
    """The lowest and highest finite value; None where there is none."""
    known = [value for values in series for each in values if (value := finite(each)) is not None]
    return (min(known), max(known)) if known else None


def ceiling(highest: Values) -> float | None:
    """The highest value worth showing: one step of warm-up must not press a whole chart flat.

    That is the maximum, unless it lies far over what 95% of the values reach.
    """
    known = sorted(value for each in highest if (value := finite(each)) is not None)
    if not known:
        return None
    usual = known[int(0.95 * (len(known) - 1))]
    return known[-1] if known[-1] <= 3 * usual or len(known) < 20 else 1.5 * usual
