"""When a stretch of late steps began and ended."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats

NEAR = 7
"""Steps next to the index that is known to lie inside, from which the level is taken first."""
AROUND = 60
"""Steps before it that tell the level before."""


def onset(excess: Floats, inside: int, near: int = NEAR, per_step: float = 0.0) -> int:
    """Index of the first step of the stretch of high values that holds index `inside`.

    The most likely place of a change between two known levels is where the sum of (value - middle of the levels),
    taken backwards from inside the stretch, is largest (Hinkley, 1970). Values are cut to the two levels' distance
    around the middle, so that one long step counts as one step. Going back ends where the sum has fallen by more
    than chance brings about inside the stretch: what lay before is another one.

    near: so many steps before `inside` belong to the stretch, as far as is known. per_step: variance of a long sum
    over its steps, where noise that lasts makes it larger than that of a step.
    """
    begin, low = max(0, inside - near), 0.0
    for _ in range(4):
        high = float(np.median(excess[begin : inside + 1]))
        before = excess[max(0, begin - AROUND) : begin]
        low = min(float(np.median(before)), high / 2) if len(before) >= NEAR else min(0.0, high / 2)
        middle, reach = (high + low) / 2, max((high - low) / 2, 1e-9)
        score = np.clip(excess[: inside + 1] - middle, -reach, reach)[::-1]
        sums = np.cumsum(score)
        noise = float(np.square(np.diff(score)).mean()) / 2 if len(score) > 1 else 0.0
        fallen = np.maximum.accumulate(sums) - sums > 6 * reach + 3 * max(noise, per_step) / reach
        end = int(fallen.argmax()) if fallen.any() else len(sums)
        found = inside - int(sums[:end].argmax()) if end else inside
        if found == begin:
            break
        begin = found
    return begin


def ending(excess: Floats, inside: int, near: int = NEAR, per_step: float = 0.0) -> int:
    """Index of the last step of the stretch of high values that holds index `inside`."""
    return len(excess) - 1 - onset(excess[::-1], len(excess) - 1 - inside, near, per_step)
