"""Separate events that recur from events that happened once or have stopped: neither is a pattern."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold

STOPPED = Threshold(
    2.0,
    of="steps since the last event, as a multiple of the longest interval between two events; never less than a window",
    why="A judgement: an event that kept its interval so far would have happened again by then.",
)


def goes_on(steps: Sequence[int] | Ints, last: int) -> bool:
    """Return whether events in these steps are a pattern that still goes on.

    Args:
        steps: Numbers of the steps with an event, rising.
        last: Number of the latest step of the run.

    """
    # A single one may be a start-up cost or an accident, and there is no distance to the next.
    return len(steps) > 1 and last - int(steps[-1]) < max(FEWEST, STOPPED.enter * max(1, int(np.diff(steps).max())))


def recurring_mean(values: Floats) -> Floats:
    """Return the mean over the steps, the first axis, without the step of the largest value."""
    rest: Floats = (values.sum(axis=0) - values.max(axis=0, initial=0.0)) / max(1, len(values) - 1)
    return rest


def recurring_mean_of(values: Sequence[float]) -> float:
    """Return the same of a few values: NumPy takes longer for each of a thousand short lists."""
    return (sum(values) - max(values, default=0.0)) / max(1, len(values) - 1)
