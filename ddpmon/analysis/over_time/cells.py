"""Values through time as cells of one byte each (`messages.cells`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Bools, Floats
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING

Bytes = NDArray[np.uint8]
BINS = 256
"""Bins that are kept of each resolution: as many columns as a wide terminal shows, in bounded memory."""


def quantise(values: Floats, has_value: Bools, low: float, high: float) -> Bytes:
    """Return the cells of values on a scale from `low` to `high`; values outside are at its ends."""
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    cells = np.where(np.isfinite(values), np.nan_to_num(share) * (MOST - LEAST) + LEAST, NOT_FINITE)
    return np.where(has_value, cells, NOTHING).astype(np.uint8)


def measured_cells(values: Floats, low: float, high: float) -> bytes:
    """Return the cells of values as bytes; NaN: there is none."""
    return quantise(values, ~np.isnan(values), low, high).tobytes()
