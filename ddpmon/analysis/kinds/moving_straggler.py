"""A different rank is late at each step: nobody is slow on average, yet every step waits for someone.

Noise has that too: with equal chances the last of R ranks is late in every step. So it is a finding only where chance
of one kind cannot make it: in most steps one rank stands apart from all others by far more than those lie apart
(of two ranks, the one or the other is late and they hardly ever arrive together), or where own times follow the
samples or tokens of each step. The last steps alone must show it: it begins and ends with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds import load_imbalance, periodic_straggler, straggler
from ddpmon.analysis.kinds.kind import Found, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.own_time import forward_may_be, other_may_be_forward
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.change_points import onset
from ddpmon.analysis.steps.summary import efficiency
from ddpmon.analysis.steps.what_if import gain_all_at_median
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.words import fitting, rank_list
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
COSTS = 1.5
"""Times what the costliest of single ranks costs: ranks that take turns cost more than that."""
ONE_RANKS = frozenset(each.KIND.name for each in (straggler, load_imbalance, periodic_straggler))
"""Kinds that are about one rank; ranks that take turns may each be late for some steps, or every so many."""


@dataclass(frozen=True)
class MovingStraggler:
    """What it costs; gain: times as fast if all ranks were as fast as the typical one."""

    load_balance_moving: float
    over_median_ms: float
    gain: float
    follows_work: float
    """Correlation of own times with work, within steps."""
    work: str = for_words()
    """"samples" or "tokens" that are uneven; "": they are not why."""
    least: float = for_words()
    most: float = for_words()
    mean: float = for_words()
    """Of a rank's work in a step."""
    counts_samples: bool = for_words()
    may_be_forward: bool = for_words()
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Found[MovingStraggler]]:
    """Where it is not rather one rank's matter, in the steps after whatever is over."""
    singles = [finding for finding in moment.found if finding.kind in ONE_RANKS]
    found = _in(_after_what_is_over(moment.world, singles), moment)
    if found and not any(_is_one_ranks_matter(single, found.cost_ms or 0.0) for single in singles):
        yield found


def _is_one_ranks_matter(single: Finding, cost_ms: float) -> bool:
    """Whether one rank is late rather than another each step: for most steps, or for most of what it costs."""
    if single.until_step is not None:
        return False
    return COSTS * (single.cost_ms or 0.0) >= cost_ms or single.evidence.get("critical_share", 0.0) > MOST


def _after_what_is_over(world: World, singles: list[Finding]) -> World:
    """The window after the last stretch of a late rank: half of each, and ranks would seem to take turns."""
    over = [f.until_step for f in singles if f.until_step is not None]
    return world.between(int(np.searchsorted(world.step, max(over), side="right")), len(world)) if over else world


def _in(world: World, moment: Moment) -> Found[MovingStraggler] | None:
    ranks = len(world.ranks)
    if ranks < 2 or len(world) < FEWEST_STEPS:
        return None
    held = moment.held_one(KIND)
    if not (_shows(world.last(MANY), STAYS) if held else _begins(world)):
        return None
    if held:
        begin = int(np.searchsorted(world.step, held.since_step or 0))
    else:
        begin = onset(world.slowest_ms - world.typical_ms, len(world) - 1, near=FEW // 2)
    begin = min(begin, len(world) - FEW // 2)
    since = int(world.step[begin])
    world = world.between(begin, len(world))
    critical = _critical(world)
    unit, follows = _work(world)
    factor = gain_all_at_median(world) if ranks > 2 else _gain_of_two(world)
    scale = STAYS if held else 1.0
    if factor - 1 < scale * (WORTH - 1):
        return None
    over = float((world.slowest_ms - world.typical_ms).mean()) * (2 if ranks == 2 else 1)
    last = world.own_ms.argmax(axis=1)
    rows = np.arange(len(world))
    phase = OWN_PHASES[int((world.phases_ms[rows, last] - np.median(world.phases_ms, axis=1)).mean(axis=0).argmax())]
    involved = np.flatnonzero(critical >= 0.5 / ranks).tolist()
    counts = world.tokens if unit == "tokens" else world.samples
    facts = MovingStraggler(
        load_balance_moving=efficiency(world).load_balance_moving,
        over_median_ms=over,
        gain=factor,
        follows_work=follows,
        work=unit if follows >= scale * FOLLOWS else "",
        least=float(counts.min()),
        most=float(counts.max()),
        mean=float(counts.mean()),
        counts_samples=bool(world.samples.any()),
        may_be_forward=forward_may_be(phase, moment.evidence),
        world_size=ranks,
    )
    return Found(
        KIND,
        "warn",
        facts,
        [world.ranks[column] for column in involved],
        phase,
        held.since_step if held else since,
        cost_ms=float(world.step_ms.mean()) * (1 - 1 / factor),
    )


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


def words(found: Found[MovingStraggler]) -> Words:
    """What it costs, and whether uneven work is why."""
    facts = found.facts
    cause = f"uneven {facts.work} make another rank late each step" if facts.work else "another rank is late each step"
    advice = _advice(found)
    return Words(
        fitting(
            f"{cause}: {facts.over_median_ms:+.1f} ms {found.phase}",
            f"; {facts.gain:.2f}x if even",
            f", load balance {facts.load_balance_moving:.0%}",
        ),
        other_may_be_forward(advice) if facts.may_be_forward else advice,
    )


def _advice(found: Found[MovingStraggler]) -> str:
    facts = found.facts
    if facts.work:
        return (
            f"Balance {facts.work} within a step: they go from {facts.least:,.0f} to {facts.most:,.0f} around"
            f" {facts.mean:,.0f}. Sort or bucket by length, or deal batches out by their sum."
        )
    sizes = "the sizes of batches are alike" if facts.counts_samples else "the sizes of batches were not measured"
    return (
        f"Look at what takes its turn in {found.phase} on ranks {rank_list(found.ranks, facts.world_size)}: batches of"
        f" uneven length, a shared disk, a collection of garbage; {sizes}, and what it is was not measured."
    )


KIND = Kind(
    "moving_straggler",
    subject="world",
    gone="ranks no longer take turns in being late",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS,
    by_cost=True,
    outdoes=tuple(sorted(ONE_RANKS)),
    changes_level=True,
    slows="waiting for ranks that are late in turn",
)
