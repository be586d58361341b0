"""A different rank is late at each step: nobody is slow on average, yet every step waits for someone.

Noise has that too: with equal chances the last of R ranks is late in every step. So it is a finding only where chance
of one kind cannot make it: in most steps one rank stands apart from all others by far more than those lie apart
(of two ranks, the one or the other is late and they hardly ever arrive together), or where own times follow the
samples or tokens of each step. The last steps alone must show it: it begins and ends with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.arrays import Floats
from ddpmon.analysis.change_points import onset
from ddpmon.analysis.summary import efficiency
from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.what_if import gain_all_at_median
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import OWN_PHASES, Finding

FEWEST_STEPS = 40
FEW, MANY = 24, 60
"""Last steps that are looked at."""
BEGINS = {FEW: 2.0, MANY: 1.2}
"""How many times what is asked for they must show for it to be told: few steps tell it badly."""
STAYS = 0.7
"""Of what is asked for, to remain told."""
APART = 2.5
"""How many times as far as the others lie apart the last one stands apart, in the median step."""
TOGETHER = 0.12
"""Of two ranks: share of steps with less than half the median distance; noise has over 25%."""
LATE = 0.08
"""Of a typical own time, in the median step."""
MOST = 0.6
"""Share of critical steps above which it is one rank's matter."""
FOLLOWS = 0.8
"""Correlation of own times with work, within steps."""
WORTH = 1.03


def moving_straggler(world: World, before: Sequence[Finding] = ()) -> list[Finding]:
    """The finding, if there is any."""
    ranks = len(world.ranks)
    if ranks < 2 or len(world) < FEWEST_STEPS:
        return []
    known = next((f for f in before if f.kind == "moving_straggler"), None)
    if not (_shows(world.last(MANY), STAYS) if known else _begins(world)):
        return []
    if known:
        begin = int(np.searchsorted(world.step, known.since_step or 0))
    else:
        begin = onset(world.slowest_ms - world.typical_ms, len(world) - 1, near=FEW // 2)
    begin = min(begin, len(world) - FEW // 2)
    since = int(world.step[begin])
    world = world.between(begin, len(world))
    critical = _critical(world)
    unit, follows = _work(world)
    factor = gain_all_at_median(world) if ranks > 2 else _gain_of_two(world)
    scale = STAYS if known else 1.0
    if factor - 1 < scale * (WORTH - 1):
        return []
    over = float((world.slowest_ms - world.typical_ms).mean()) * (2 if ranks == 2 else 1)
    last = world.own_ms.argmax(axis=1)
    rows = np.arange(len(world))
    phase = OWN_PHASES[int((world.phases_ms[rows, last] - np.median(world.phases_ms, axis=1)).mean(axis=0).argmax())]
    involved = np.flatnonzero(critical >= 0.5 / ranks).tolist()
    balance = efficiency(world).load_balance_moving
    even = follows >= scale * FOLLOWS
    cause = f"uneven {unit} make another rank late each step" if even else "another rank is late each step"
    return [
        Finding(
            "moving_straggler",
            "warn",
            fitting(f"{cause}: {over:+.1f} ms {phase}", f"; {factor:.2f}x if even", f", load balance {balance:.0%}"),
            [world.ranks[column] for column in involved] if len(involved) < ranks else list(world.ranks),
            phase,
            known.since_step if known else since,
            cost_ms=float(world.step_ms.mean()) * (1 - 1 / factor),
            evidence={"load_balance_moving": balance, "over_median_ms": over, "gain": factor, "follows_work": follows},
            advice=_advice(world, phase, unit if even else "", rank_list(involved, ranks)),
        )
    ]


def _begins(world: World) -> bool:
    """Whether some number of last steps shows it, and both halves of them do: a burst of noise comes once."""
    for steps, scale in BEGINS.items():
        recent = world.last(steps)
        half = len(recent) // 2
        parts = recent.between(0, half), recent.between(half, len(recent))
        if _shows(recent, scale) and all(_shows(part, STAYS) for part in parts):
            return True
    return False


def _shows(world: World, scale: float) -> bool:
    """Whether it is in these steps. scale: of what is asked for."""
    most = MOST + 0.1 * (len(world.ranks) == 2)
    if _critical(world).max() > most:
        return False
    return _stands_apart(world.own_ms, scale) or _work(world)[1] >= min(scale, 1.0) * FOLLOWS


def _critical(world: World) -> Floats:
    """[R] Share of the steps in which each was the critical rank."""
    share: Floats = np.bincount(world.critical[world.critical >= 0], minlength=len(world.ranks)) / len(world)
    return share


def _stands_apart(own: Floats, scale: float) -> bool:
    """Whether in most steps one rank is late by itself, and it changes who."""
    ranks = own.shape[1]
    typical = float(np.median(own[:: max(1, len(own) // 60)]))
    if ranks == 2:
        apart = np.abs(own[:, 0] - own[:, 1])
        middle = float(np.median(apart))
        same = float((apart < middle / 2).mean())
        return bool(middle >= scale * LATE * typical and same <= TOGETHER / scale and _changes(own) >= 0.2)
    top = np.partition(own, (ranks - 2, ranks - 1), axis=1)
    gap = top[:, -1] - top[:, -2]
    rest = top[:, -2] - np.median(own, axis=1) if ranks > 8 else top[:, -2] - own.min(axis=1)
    middle = float(np.median(gap))
    return bool(
        middle >= scale * LATE * typical
        and middle >= scale * APART * float(np.median(rest))
        and _changes(own) >= 0.5 * (1 - 1 / ranks)
    )


def _changes(own: Floats) -> float:
    """Share of steps whose last rank is another than the step's before."""
    last = own.argmax(axis=1)
    return float((np.diff(last) != 0).mean())


def _work(world: World) -> tuple[str, float]:
    """Whether ranks are late when they have more to do: unit, and correlation within steps."""
    for unit, counts in (("tokens", world.tokens), ("samples", world.samples)):
        uneven = counts - counts.mean(axis=1, keepdims=True)
        if counts.min() <= 0 or np.abs(uneven).mean() < 0.02 * counts.mean():
            continue
        over = world.excess_ms - world.excess_ms.mean(axis=1, keepdims=True)
        scale = float(np.sqrt(np.square(uneven).sum() * np.square(over).sum()))
        return unit, float((uneven * over).sum()) / scale if scale else 0.0
    return "", 0.0


def _gain_of_two(world: World) -> float:
    """With both as fast as the faster one of each step."""
    real = world.step_ms
    simulated = float((real - np.abs(world.own_ms[:, 0] - world.own_ms[:, 1])).sum())
    return float(real.sum()) / simulated if simulated > 0 else 1.0


def _advice(world: World, phase: str, unit: str, who: str) -> str:
    if unit:
        counts = world.tokens if unit == "tokens" else world.samples
        return (
            f"Balance {unit} within a step: they go from {counts.min():,} to {counts.max():,} around"
            f" {counts.mean():,.0f}. Sort or bucket by length, or deal batches out by their sum."
        )
    known = "the sizes of batches are alike" if world.samples.any() else "the sizes of batches were not measured"
    return (
        f"Look at what takes its turn in {phase} on ranks {who}: batches of uneven length, a shared disk, a collection"
        f" of garbage; {known}, and what it is was not measured."
    )
