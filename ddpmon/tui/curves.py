"""Reduces a series over time to one value per column of dots, and computes the range that a chart shows."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence

from ddpmon.tui.frame import finite_or_none

Values = Sequence[float | None]
LEAST_VALUES = 5
"""Minimum number of values that are needed to recognise an outlier."""
Curve = list[float | None]


def safe_mean(values: Sequence[float]) -> float:
    """Return the mean, without an overflow if the values are near the largest float."""
    return math.fsum(value / len(values) for value in values)


def column_of_moment(at: float, span: tuple[float, float], columns: int) -> int:
    """Return the column of a moment on a chart. The start of `span` is in the first column, its end in the last.

    A moment outside the span gets a column outside the chart, at most one chart width away.
    """
    whole = span[1] - span[0]
    share = (at - span[0]) / whole if 0 < whole < math.inf else 0.0
    return round((columns - 1) * min(2.0, max(-1.0, share)))


def nearest_point(seconds: Sequence[float], span: tuple[float, float], at: float) -> int | None:
    """Return the index of the point in a span that is nearest to a moment; None if no point is in the span."""
    first = bisect.bisect_left(seconds, span[0])
    end = bisect.bisect_right(seconds, span[1])
    if first >= end:
        return None
    after = bisect.bisect_left(seconds, at, first, end)
    near = [place for place in (after - 1, after) if first <= place < end]
    return min(near, key=lambda place: abs(seconds[place] - at))


def moment_of(x: int, span: tuple[float, float], columns: int) -> float:
    """Return the time in the middle of a column of character cells."""
    return span[0] + (x + 0.5) / columns * (span[1] - span[0])


def column_values(
    seconds: Sequence[float],
    values: Values,
    columns: int,
    reduce: Callable[[Sequence[float]], float],
    span: tuple[float, float] | None = None,
) -> Curve:
    """Return one value per column. The left and right edges are the two ends of `span`, or the first and the last
    point.

    Points that fall into one column are reduced to one value; columns between two points are interpolated. A missing,
    nan or infinite value breaks the curve.
    """
    points = [(at, finite_or_none(value)) for at, value in zip(seconds, values, strict=False) if math.isfinite(at)]
    result: Curve = [None] * max(0, columns)
    if not points or columns <= 0:
        return result
    span = span or (points[0][0], points[-1][0])
    gathered: dict[int, list[float]] = {}
    for at, value in points:
        in_column = gathered.setdefault(column_of_moment(at, span, columns), [])
        if value is not None:
            in_column.append(value)
    before: tuple[int, float] | None = None
    for place in sorted(gathered):
        if not gathered[place]:
            before = None
            continue
        current = place, reduce(gathered[place])
        if before is not None:
            for between in range(max(0, before[0] + 1), min(columns, place)):
                share = (between - before[0]) / (place - before[0])
                result[between] = before[1] * (1 - share) + current[1] * share
        if 0 <= place < columns:
            result[place] = current[1]
        before = current
    return result


def smoothed(values: Values, weight: float) -> list[float | None]:
    """Return the bias-corrected exponential moving average; missing, nan and infinite values stay unchanged.

    The formula is TensorBoard's (classicSmoothing in webapp/widgets/line_chart_v2/data_transformer.ts), with a weight
    from 0 to below 1. The bias correction is the same as for Adam's moments (Kingma and Ba 2015). The average is over
    the given points, so the same weight smooths a longer stretch of time if a point stands for more steps.
    """
    result: list[float | None] = []
    last, bias = 0.0, 1.0
    for each in values:
        if (value := finite_or_none(each)) is None:
            result.append(each)
            continue
        last = last * weight + value * (1 - weight)
        bias *= weight
        result.append(last / (1 - bias))
    return result


def finite_limits(*series: Values) -> tuple[float, float] | None:
    """Return the lowest and the highest finite value; None if no value is finite."""
    finite_values = [value for values in series for each in values if (value := finite_or_none(each)) is not None]
    return (min(finite_values), max(finite_values)) if finite_values else None


def chart_ceiling(highest: Values) -> float | None:
    """Return the highest value that a chart should show, so that one slow warm-up step does not flatten the chart.

    The base of the chart is zero, or the lowest value if that is negative. The result is the maximum, unless the
    maximum is more than three times as far from the base as the 95th percentile. Then the result is 1.5 times as far
    from the base as that percentile.
    """
    ordered = sorted(value for each in highest if (value := finite_or_none(each)) is not None)
    if not ordered:
        return None
    usual, base = ordered[int(0.95 * (len(ordered) - 1))], min(0.0, ordered[0])
    if len(ordered) < LEAST_VALUES or ordered[-1] - base <= 3 * (usual - base):
        return ordered[-1]
    return base + 1.5 * (usual - base)
