"""Tell what comes again and again from what happened once or has stopped: neither is a pattern."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold

OCCURRENCES = Threshold(
    2,
    of="occurrences",
    why="A judgement: a single one may be a start-up cost or an accident, and there is no distance to the next.",
)
STOPPED = Threshold(
    2.0,
    of="times the longest distance between two occurrences, in steps since the last one",
    why="A judgement: what kept its distance so far would have come once more by then.",
)
STOPPED_STEPS = Threshold(
    FEWEST,
    of="steps since the last occurrence",
    why="A judgement: as many as a mean is taken over; what came in every step may leave some out.",
)


def goes_on(steps: Sequence[int] | Ints, last: int) -> bool:
    """Return whether what happened in these steps, in rising order, is a pattern that still goes on.

    Args:
        steps: Numbers of the steps in which it happened.
        last: Number of the latest step of the run.

    """
    if not OCCURRENCES.reached(len(steps)):
        return False
    silence = last - int(steps[-1])
    return not (STOPPED_STEPS.reached(silence) and STOPPED.reached(silence / max(1, int(np.diff(steps).max()))))


def recurring_mean(values: Floats) -> Floats:
    """Return the mean over the steps, the first axis, without the step that has most."""
    rest: Floats = (values.sum(axis=0) - values.max(axis=0, initial=0.0)) / max(1, len(values) - 1)
    return rest
