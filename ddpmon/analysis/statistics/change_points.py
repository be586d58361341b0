"""When a stretch of late steps began and ended."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, median
from ddpmon.analysis.statistics.wandering import of_one

NEAR = 7
"""Steps next to the index inside the stretch from which its level is first estimated."""
AROUND = 60
"""Steps before it from which the level before is estimated."""
ENOUGH = 20.0
"""Chi-square of a step up that hardly any noise has anywhere in some hundreds of steps."""
HEAVY = 0.8
"""Of the mean square of all innovations, outlying ones and the step's own included: at least that is their variance."""
OUTLYING = 4.0
"""Standard deviations of an innovation beyond which a single long step counts as its neighbours."""
NOTHING = 1e-18
"""What is left of a value when no sum shows it any more."""


def onset(excess: Floats, inside: int, near: int = NEAR, per_step: float = 0.0) -> int:
    """Index of the first step of the stretch of high values that holds index `inside`.

    The most likely place of a change between two known levels is where the sum of (value - middle of the levels),
    taken backwards from inside the stretch, is largest (Hinkley, 1970). Values are cut to the two levels' distance
    around the middle, so that one long step counts as one step. Going back ends where the sum has fallen by more
    than chance brings about inside the stretch: what lay before is another one.

    near: so many steps before `inside` are taken to belong to the stretch. per_step: variance of a long sum
    over its steps, where noise that lasts makes it larger than that of a step.
    """
    begin, low = max(0, inside - near), 0.0
    for _ in range(4):
        high = median(excess[begin : inside + 1])
        before = excess[max(0, begin - AROUND) : begin]
        low = min(median(before), high / 2) if len(before) >= NEAR else min(0.0, high / 2)
        middle, reach = (high + low) / 2, max((high - low) / 2, 1e-9)
        score = np.clip(excess[: inside + 1] - middle, -reach, reach)[::-1]
        sums = np.cumsum(score)
        noise = float(np.square(np.diff(score)).mean()) / 2 if len(score) > 1 else 0.0
        fallen = np.maximum.accumulate(sums) - sums > 6 * reach + 3 * max(noise, per_step) / reach
        end = int(fallen.argmax()) if fallen.any() else len(sums)
        moved = inside - int(sums[:end].argmax()) if end else inside
        if moved == begin:
            break
        begin = moved
    return begin


def ending(excess: Floats, inside: int, near: int = NEAR, per_step: float = 0.0) -> int:
    """Index of the last step of the stretch of high values that holds index `inside`."""
    return len(excess) - 1 - onset(excess[::-1], len(excess) - 1 - inside, near, per_step)


def step_up(
    values: Floats, first: int, last: int, noise: tuple[float, float, float] | None = None
) -> tuple[int, float]:
    """Where a level most likely rose, index `first` to `last`, in noise that may wander; and by how much that shows.

    Generalised least squares: white noise and a first-order autoregression, fitted to the values, are turned into
    independent innovations (the steady-state Kalman filter); so is a step at each index, beside a constant level. The
    best one leaves the least. A jump between neighbours tells where noise wanders, means of many where it does not.

    noise: what `of_one` says of the values, where it was asked already. The second value is the chi-square of the step;
    below ENOUGH there is none that noise does not explain.
    """
    white, wanders, lasts = noise or of_one(values)
    keep = float(np.exp(-1 / lasts)) if wanders else 0.0
    fresh = wanders * (1 - keep**2)
    half = (white * (1 - keep**2) - fresh) / 2
    ahead = -half + (half**2 + fresh * white) ** 0.5  # variance of what is predicted one step ahead, settled
    scale = ahead + white
    decay = keep * white / scale if scale > 0 else 0.0
    reach = OUTLYING * max(scale, 1e-12) ** 0.5
    moves = np.diff(values, prepend=values[:1])
    spikes = (np.abs(moves[1:-1]) > reach) & (np.abs(moves[2:]) > reach) & (moves[1:-1] * moves[2:] < 0)
    calm = values.copy()
    calm[1:-1][spikes] = np.minimum(values[:-2], values[2:])[spikes]

    innovations = _decaying(np.concatenate([calm[:1], calm[1:] - keep * calm[:-1]]), decay)
    settled = (1 - keep) / (1 - decay)
    shape = settled + (1 - settled) * np.power(decay, np.arange(len(calm)))  # what a step becomes
    level = float(shape @ shape)
    innovations -= shape * (float(shape @ innovations) / level)
    scale = max(scale, float(np.square(innovations).mean()) * HEAVY)
    along = _against_steps(innovations, settled, decay)
    with_level = _against_steps(shape, settled, decay)
    power = np.cumsum(np.square(shape))[::-1] - np.square(with_level) / level
    explained = np.square(np.maximum(along, 0.0)) / np.maximum(power, 1e-9) / max(scale, 1e-12)
    best = first + int(explained[first : last + 1].argmax())
    return best, float(explained[best])


def _against_steps(values: Floats, settled: float, decay: float) -> Floats:
    """[S] The product with a step at each index, which is 1 there and goes on to `settled` by a factor each time."""
    product: Floats = settled * np.cumsum(values[::-1])[::-1] + (1 - settled) * _decaying(values[::-1], decay)[::-1]
    return product


def _decaying(values: Floats, decay: float) -> Floats:
    """[S] Each value, and what is left of those before it: of one, of two, of four of them, and so on."""
    left = values.copy()
    reach = 1
    while reach < len(left) and decay > NOTHING:
        left[reach:] += decay * left[:-reach]
        reach, decay = 2 * reach, decay**2
    return left
