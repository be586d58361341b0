"""Values through time as cells of one byte each (`messages.cells`), and since when a condition on them holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING

Bytes = NDArray[np.uint8]
BINS = 256
"""Bins that are kept of each resolution: as many columns as a wide terminal shows, in bounded memory."""
_MISSES = 20
"""One bin in so many may miss a condition that holds all the same: single steps stray."""


def latest_bins(last_step: int, steps: int, most: int) -> Ints:
    """Numbers of the bins of so many steps up to that of the last step, as many as are wanted and kept at most.

    They begin with that of the first step, which is step 1.
    """
    last = last_step // steps
    return np.arange(max(1 // steps, last - min(most, BINS) + 1), last + 1)


def quantise(values: Floats, has_value: Bools, low: float, high: float) -> Bytes:
    """Cells of values on a scale from `low` to `high`; what lies outside of it is at its end."""
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    cells = np.where(np.isfinite(values), np.nan_to_num(share) * (MOST - LEAST) + LEAST, NOT_FINITE)
    return np.where(has_value, cells, NOTHING).astype(np.uint8)


def holds_since(holds: Bools) -> int | None:
    """Place from which on a condition holds up to the end, but for one bin in twenty; None: at the end it does not."""
    if not len(holds) or not holds[-1]:
        return None
    backwards = holds[::-1]
    misses = np.cumsum(~backwards)
    begins = np.flatnonzero((misses <= np.arange(1, len(backwards) + 1) / _MISSES) & backwards)
    return len(holds) - 1 - int(begins[-1])
