"""A different rank is late at each step: nobody is slow on average, yet every step waits for someone.

Noise has that too: with equal chances the last of R ranks is late in every step. So it is a finding only where chance
of one kind cannot make it: in most steps one rank stands apart from all others by far more than those lie apart, or own
times follow the samples or tokens of each step; or where ranks take turns of many steps. The last steps alone must show
it: it begins and ends with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpmon.analysis.kinds import load_imbalance, periodic_straggler, several_stragglers, slow_host, straggler
from ddpmon.analysis.kinds.another_each_step import (
    FEW,
    FOLLOWS,
    MANY,
    MOST,
    begins,
    lateness_of_the_last,
    shows,
    work_followed,
)
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, covers_what_goes_on, for_words
from ddpmon.analysis.kinds.own_time import caveat, forward_may_be
from ddpmon.analysis.kinds.slow import Slow
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, STAYS
from ddpmon.analysis.statistics.arrays import medians
from ddpmon.analysis.statistics.change_points import onset
from ddpmon.analysis.steps.even_work import MORE_WORK
from ddpmon.analysis.steps.summary import efficiency
from ddpmon.analysis.steps.turns import SHORTEST_TURN, turns
from ddpmon.analysis.steps.what_if import gain_all_even
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import OWN_PHASES, Finding

INVOLVED = Threshold(
    0.5,
    of="times its share of critical steps by chance, from which on a rank is named",
    why="A judgement: a rank that is the last half as often as it would be by chance takes little part.",
)
WORTH = Threshold(
    1.03,
    of="times as fast if all ranks were as fast as the typical one",
    why="A judgement: noise alone makes the last of several later than the typical one, so it asks for more than where"
    " one rank is late.",
    stay=1.021,
)
TURNS_REPORTED = Threshold(
    1.045,
    of="times as fast if no rank had its turn",
    why="A judgement: half as much again as where another rank is late each step.",
    stay=1.015,
)
TURNS_WORTH = Threshold(
    1.15,
    of="times as fast if no rank had its turn, to be a reason to act",
    why="A judgement: what wanders from rank to rank is harder to find than one rank that is late.",
    stay=1.08,
)
COSTS = Threshold(
    1.5,
    of="times what the costliest single rank costs that ranks in turn cost",
    why="A judgement: where it is less, mending that one rank gains most of it.",
)
TURNS = Threshold(
    3,
    of="times what a turn takes that one rank is late, where ranks take turns",
    why="A judgement: a rank that is late for three turns is late for a reason of its own.",
)
MUCH = Threshold(
    4,
    of="times what turns cost that one late rank costs",
    why="A judgement: noise makes no turn so much worse than the mean of all (of normal values, three standard"
    " deviations are twice the mean of the largest of eight), and nobody need wait to be told of it.",
)
ONE_RANKS = frozenset(
    each.KIND.name for each in (straggler, several_stragglers, slow_host, load_imbalance, periodic_straggler)
)
"""Kinds about a rank or about ranks that are late at once; those that take turns may each be late for some steps, or
every so many."""


@dataclass(frozen=True)
class MovingStraggler:
    """What it costs; gain: times as fast if all ranks were as fast as the typical one."""

    load_balance_moving: float
    over_median_ms: float
    gain: float
    follows_work: float
    """Correlation of own times with work, within steps."""
    turn_steps: int | None = None
    """For how many steps a rank is late before another one is; None: another one each step."""
    work: str = for_words("")
    """"samples" or "tokens" that are uneven; "": they are not why."""
    least: float = for_words(0.0)
    most: float = for_words(0.0)
    mean: float = for_words(0.0)
    """Of a rank's work in a step."""
    counts_samples: bool = for_words(default=False)
    may_be_forward: bool = for_words(default=False)
    world_size: int = for_words(0)


def detect(moment: Moment) -> Iterator[Detection[MovingStraggler]]:
    """Where it is not rather one rank's matter, in the steps after whatever is over."""
    singles = [finding for finding in moment.findings if finding.kind in ONE_RANKS]
    lasting = [one for one in moment.detections if one.kind.name in ONE_RANKS and one.until_step is None]
    detection = _in(_after_what_is_over(moment.world, singles), moment)
    if detection and not any(_is_one_ranks_matter(single, detection.cost_ms or 0.0) for single in lasting):
        yield detection
        return
    slow = _in_turns(moment.longer or moment.world, moment)
    if slow:
        yield slow


def _is_one_ranks_matter(single: Detection[Any], cost_ms: float) -> bool:
    """Whether one rank is late rather than another each step: for most steps, or for most of what it costs."""
    mostly = isinstance(single.facts, Slow) and single.facts.critical_share > MOST.enter
    return mostly or COSTS.enter * (single.cost_ms or 0.0) >= cost_ms


def _after_what_is_over(world: World, singles: list[Finding]) -> World:
    """The window after the last stretch of a late rank: half of each, and ranks would seem to take turns."""
    over = [f.until_step for f in singles if f.until_step is not None]
    return world.between(int(np.searchsorted(world.step, max(over), side="right")), len(world)) if over else world


def _in(world: World, moment: Moment) -> Detection[MovingStraggler] | None:
    ranks = len(world.ranks)
    if ranks < 2 or len(world) < FEWEST_STEPS.enter:
        return None
    held = moment.held_one(KIND)
    if held is not None and "turn_steps" in held.evidence:
        held = None  # turns of many steps are something else, and began at another time
    if not (shows(world.last(MANY), STAYS) if held else begins(world)):
        return None
    if held:
        begin = int(np.searchsorted(world.step, held.since_step or 0))
    else:
        begin = onset(lateness_of_the_last(world), len(world) - 1, near=FEW // 2)
    begin = min(begin, len(world) - FEW // 2)
    since = int(world.step[begin])
    world = world.between(begin, len(world))
    critical = np.nan_to_num(world.critical_share)
    unit, follows = work_followed(world)
    factor = gain_all_even(world)
    if not WORTH.reached(factor, held=held is not None):
        return None
    over = float(world.lead_ms.mean())
    phase = _phase_of_the_last(world)
    involved = np.flatnonzero(critical >= INVOLVED.enter / ranks).tolist()
    counts = world.tokens if unit == "tokens" else world.samples
    facts = MovingStraggler(
        load_balance_moving=efficiency(world).load_balance_moving,
        over_median_ms=over,
        gain=factor,
        follows_work=follows,
        work=unit if FOLLOWS.reached(follows, held=held is not None) else "",
        least=float(counts.min()),
        most=float(counts.max()),
        mean=float(counts.mean()),
        counts_samples=bool(world.samples.any()),
        may_be_forward=forward_may_be(phase, moment.evidence),
        world_size=ranks,
    )
    return Detection(
        KIND,
        "warn",
        facts,
        [world.ranks[column] for column in involved],
        phase,
        held.since_step if held else since,
        cost_ms=float(world.step_ms.mean()) * (1 - 1 / factor),
    )


def _in_turns(world: World, moment: Moment) -> Detection[MovingStraggler] | None:
    """Ranks that are late for many steps, each in its turn: noise that wanders, or what goes from one to the next."""
    held = moment.held_one(KIND)
    if held is not None and "turn_steps" not in held.evidence:
        held = None  # another one each step is something else, and began at another time
    # A rank with a finding of its own is late for a reason of its own, and would be alike for long as well.
    single = [world.ranks.index(rank) for one in moment.findings if one.kind in ONE_RANKS for rank in one.ranks]
    rotation = turns(world, single, held=held is not None)
    if rotation is None:
        return None
    step = float(world.step_ms.mean())
    factor = step / max(step - rotation.over_ms, 1e-9)
    if not TURNS_REPORTED.reached(factor, held=held is not None):
        return None
    phase = _phase_of_the_last(world)
    facts = MovingStraggler(
        load_balance_moving=efficiency(world).load_balance_moving,
        over_median_ms=rotation.over_ms,
        gain=factor,
        follows_work=0.0,
        turn_steps=rotation.steps,
        counts_samples=bool(world.samples.any()),
        may_be_forward=forward_may_be(phase, moment.evidence),
        world_size=len(world.ranks),
    )
    acts = TURNS_WORTH.reached(factor, held=held is not None and held.severity == "warn")
    ranks = [world.ranks[column] for column in rotation.columns]
    since = held.since_step if held else int(world.step[0])
    cost = step * (1 - 1 / factor)
    return Detection(KIND, "warn" if acts else "info", facts, ranks, phase, since, cost_ms=cost)


def _phase_of_the_last(world: World) -> str:
    """In which the last rank of a step is late most."""
    over = world.phases_ms[np.arange(len(world)), world.own_ms.argmax(axis=1)] - medians(world.phases_ms)
    return OWN_PHASES[int(over.mean(axis=0).argmax())]


def covers(whole: Finding, part: Finding) -> bool:
    """Whether a late rank is but one of those that are late in turn; where turns are long, if it is late for few."""
    turn_steps = whole.evidence.get("turn_steps")
    steps = part.evidence.get("steps", SHORTEST_TURN.enter)
    if turn_steps is None:
        return covers_what_goes_on(whole, part) or (whole.severity != "info" and steps < SHORTEST_TURN.enter)
    if part.kind == periodic_straggler.KIND.name:
        return False  # every so many steps is no turn
    cost_ms = part.cost_ms or 0.0
    return bool(steps < TURNS.enter * turn_steps and cost_ms < MUCH.enter * (whole.cost_ms or 0.0))


def words(detection: Detection[MovingStraggler]) -> Words:
    """What it costs, and whether uneven work is why."""
    facts = detection.facts
    if facts.turn_steps is not None:
        return _words_of_turns(detection)
    lead = f"uneven {facts.work} make another rank late each step:" if facts.work else "another rank is late each step:"
    advice = _advice(detection)
    return Words(
        fitting(
            f"{lead} {facts.over_median_ms:+.1f} ms {detection.phase}",
            f"; {facts.gain:.2f}x if even",
            f", load balance {facts.load_balance_moving:.0%}",
        ),
        caveat(facts, advice),
        lead=lead,
    )


def _words_of_turns(detection: Detection[MovingStraggler]) -> Words:
    facts = detection.facts
    who = named_ranks(detection.ranks, facts.world_size).capitalize()
    advice = (
        f"{who} are each late for some {facts.turn_steps} steps, then others are: other programs on their cores or"
        " GPUs, clocks that rise and fall, a shared disk or network. No rank is slow for good; what it is was not"
        " measured."
    )
    lead = f"ranks are late in turn, each for some {facts.turn_steps} steps:"
    return Words(
        fitting(f"{lead} {facts.over_median_ms:+.1f} ms", f"; {facts.gain:.2f}x if even"),
        caveat(facts, advice),
        lead=lead,
    )


def _advice(detection: Detection[MovingStraggler]) -> str:
    facts = detection.facts
    if facts.work:
        return (
            f"Balance {facts.work} within a step: they go from {facts.least:,.0f} to {facts.most:,.0f} around"
            f" {facts.mean:,.0f}. Sort or bucket by length, or deal batches out by their sum."
        )
    sizes = "the sizes of batches were not measured"
    if facts.counts_samples:
        is_alike = facts.most <= (1 + MORE_WORK.enter) * facts.least
        span = f"go from {facts.least:,.0f} to {facts.most:,.0f}, but are not why"
        sizes = f"the sizes of batches {'are alike' if is_alike else span}"
    return (
        f"Look at what takes its turn in {detection.phase} on {named_ranks(detection.ranks, facts.world_size)}:"
        f" batches of uneven length, a shared disk, a collection of garbage; {sizes}, and what it is was not measured."
    )


KIND = Kind(
    "moving_straggler",
    subject="world",
    gone="ranks no longer take turns in being late",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
    outdoes=tuple(sorted(ONE_RANKS)),
    covers=covers,
    changes_level=True,
    slows="waiting for ranks that are late in turn",
)
