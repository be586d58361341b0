"""Decide whether a problem recurs and costs enough time to be a finding: one rule for all kinds except slow ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.kinds.kind import Moment, StepCost
from ddpmon.analysis.statistics.arrays import Floats, Ints, lower_medians
from ddpmon.analysis.statistics.excess import some_of
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

STAYS = 0.7
"""Share of a threshold above which a finding lasts once the threshold was reached. If 40 steps vary by 20%, their mean
varies by 3%, far less than the 30% between the two values."""
RELEVANT = Threshold(
    0.05,
    of="share of the run's time that a problem (other than a slow rank) must cost before ddpmon reports it",
    why="A judgement call: without the problem, training is 1.05 times as fast, and the fix is usually one "
    "line of code or one cable.",
    stay=0.05 * STAYS,
)
COSTLY = Threshold(
    0.15,
    of="share of the run's time that a problem must cost before ddpmon warns, if the problem may be intended "
    "or takes long to fix",
    why="A judgement call: such a problem makes a step about a sixth longer. The value is three times the "
    "share at which ddpmon reports a problem.",
    stay=0.15 * STAYS,
)
BOUND = Threshold(
    1 / 3,
    of="share of a step in which all ranks wait for data, or for transfers that no computation hides",
    why="A judgement call: without this wait, steps are 1.5 times as fast. Such a gain is worth a change of "
    "the training setup.",
    stay=STAYS / 3,
)
SHORTEST_MS = Threshold(
    5.0,
    of="mean length of a step in ms, below which ddpmon does not report shares of a step",
    why="A judgement call: shorter steps are mostly fixed overhead, for which ddpmon has another hint.",
)


def lasting_cost(
    moment: Moment, each_ms: Floats, threshold: Threshold = RELEVANT, *, least_ms: float = 0.0
) -> StepCost | None:
    """Return the cost of a problem; None if it is too low, or if it occurred in a single step.

    Args:
        moment: The moment, with the steps of the window and the kind that is being detected.
        each_ms: [S] Time in ms that the problem takes in each step.
        threshold: Smallest share of a step that counts.
        least_ms: Minimum cost of a mean step in ms.

    """
    found = cost(moment, float(each_ms.mean()))
    enough = recurring_mean(each_ms) >= threshold.number_to_reach(moment.previous_finding is not None) * found.step_ms
    return found if SHORTEST_MS.is_reached(found.step_ms) and enough and found.cost_ms >= least_ms else None


def cost(moment: Moment, cost_ms: float) -> StepCost:
    """Return the cost of a problem that takes `cost_ms` of a mean step."""
    step_ms = max(float(moment.world.step_ms.mean()), 1e-9)
    gain = step_ms / max(step_ms - cost_ms, 1e-3)
    return StepCost(step_ms, cost_ms, cost_ms / step_ms, gain, moment.first_step(moment.world))


def most_ranks(world: World, phase: int) -> Floats:
    """Return the lower median over ranks of the time in a phase, for each step [S]."""
    return lower_medians(world.phases_ms[:, some_of(np.arange(len(world.ranks))), phase])


def gradient_transfer(world: World) -> Floats:
    """Return, for each step [S], the transfer time of the gradients' all-reduce that no computation overlaps."""
    transfer: Floats = world.exposed_ms.mean(axis=1) - world.exposed_wait_ms.mean(axis=1)
    return transfer


STOPPED = Threshold(
    2.0,
    of="number of steps without an event, as a multiple of the longest interval between two events, after which "
    "ddpmon considers a recurring problem ended; at least the steps of one window",
    why="A judgement call: if the event still occurred at its usual interval, it would have occurred again by then.",
)


def goes_on(steps: Sequence[int] | Ints, last: int) -> bool:
    """Return whether events in these steps recur and still continue.

    Args:
        steps: Numbers of the steps with an event, rising.
        last: Number of the latest step of the run.

    """
    # A single event may be a start-up cost or an accident, and has no interval to the next one.
    return len(steps) > 1 and last - int(steps[-1]) < max(
        MIN_WINDOW_STEPS, STOPPED.enter * max(1, int(np.diff(steps).max()))
    )


def recurring_mean(values: Floats) -> Floats:
    """Return the mean over the steps (the first axis) without the step that has the largest value."""
    rest: Floats = (values.sum(axis=0) - values.max(axis=0, initial=0.0)) / max(1, len(values) - 1)
    return rest
