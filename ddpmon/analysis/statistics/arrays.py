"""Array types, and medians that are faster than NumPy's."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.floating[Any])

SIGMAS_PER_MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of a normal distribution."""
NARROW = 16
"""Number of columns up to which sorting whole rows is faster than partitioning them at the median."""


def middle_values(values: NDArray[Number]) -> tuple[NDArray[Number], NDArray[Number], NDArray[Number]]:
    """Return each row's median, and its neighbours among the row's sorted values: [S, R, ...] -> three of [S, ...].

    With an even number of values, the neighbours are the two values around the median. This function is faster than
    `np.median`, which also checks for NaN and partitions at one more position.

    Returns:
        The lower neighbour, the median and the upper neighbour.

    """
    count = values.shape[1]
    half = count // 2
    low_end, high_end = max(half - 1, 0), min(half + (count % 2), count - 1)
    if count <= NARROW:
        parts = np.sort(values, axis=1)
    else:
        parts = np.partition(values, half, axis=1)
        parts[:, low_end] = parts[:, :half].max(axis=1)
        if count % 2:
            parts[:, high_end] = parts[:, half + 1 :].min(axis=1)
    low, high = parts[:, low_end], parts[:, high_end]
    middle: NDArray[Number] = parts[:, half]
    return low, middle if count % 2 else (low + middle) / 2, high


def row_medians(values: NDArray[Number]) -> NDArray[Number]:
    """Return the median of each row: [S, R, ...] -> [S, ...]."""
    count = values.shape[1]
    if count % 2 and count > NARROW:  # The neighbours of the median are not needed.
        middle: NDArray[Number] = np.partition(values, count // 2, axis=1)[:, count // 2]
        return middle
    return middle_values(values)[1]


def column_medians(values: NDArray[Number]) -> NDArray[Number]:
    """Return the median over the rows: [S, ...] -> [...]."""
    middle: NDArray[Number] = row_medians(values[None])[0]
    return middle


def lower_medians(values: NDArray[Number]) -> NDArray[Number]:
    """Return the median of each row: [S, R, ...] -> [S, ...].

    With an even number of values, return the lower of the middle two. It is large only if more than half of the values
    are large.
    """
    place = (values.shape[1] - 1) // 2
    lower: NDArray[Number] = np.partition(values, place, axis=1)[:, place]
    return lower


def series_median(values: NDArray[Number]) -> float:
    """Return the median of one series."""
    half, parts = len(values) // 2, values.copy()
    parts.partition(half)
    return float(parts[half] if len(values) % 2 else (parts[:half].max() + parts[half]) / 2)


def last_run(values: Bools) -> int:
    """Return the index of the first value of the last run of true values; `len(values)` if the last value is false."""
    return len(values) - int(np.logical_and.accumulate(values[::-1]).sum())
