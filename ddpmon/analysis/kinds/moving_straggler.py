"""A different rank is slow each time: no rank is slow for long, and yet every step waits for one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.slow import SlowRanks, forward_may_be, slow_ranks
from ddpmon.analysis.kinds.slow_words import caveat
from ddpmon.analysis.slowness.slowdown import WORTH
from ddpmon.analysis.steps.even_work import MORE_WORK
from ddpmon.analysis.steps.summary import efficiency
from ddpmon.analysis.words import counted, fitting_parts, named_ranks

SHORT_TURN = 4
"""Steps of a turn from which on they are mentioned: of two ranks that are slow at random a turn has two."""


@dataclass(frozen=True)
class MovingStraggler:
    """Excesses are of the slowest rank of a step over the others, means."""

    load_balance_moving: float
    excess_ms: float
    phase_excess_ms: float
    """Of that, in the phase of the finding."""
    gain: float
    """Times as fast if no rank stood apart, or if work were even."""
    steps: int
    """From the first one on."""
    since_interval: list[int] | None = None
    """95% interval of the first step, where that is not exact."""
    turn_steps: int | None = None
    """For how many steps a rank is slow before another one is; None: another one each step."""
    work: str | None = None
    """"samples" or "tokens" that are uneven; None: they are not why."""
    least: float = for_words(0.0)
    most: float = for_words(0.0)
    mean: float = for_words(0.0)
    """Of a rank's work in a step."""
    has_counts: bool = for_words(default=False)
    may_be_forward: bool = for_words(default=False)
    world_size: int = for_words(0)


def detect(moment: Moment) -> Iterator[Detection[MovingStraggler]]:
    """Return the slowdowns that move from rank to rank."""
    for one in slow_ranks(moment, {"rotating"}):
        yield _detection(moment, one)


def _detection(moment: Moment, slow: SlowRanks) -> Detection[MovingStraggler]:
    one, part = slow.slowdown, slow.part
    held = moment.held_one(KIND)
    counts = part.tokens if one.work == "tokens" else part.samples
    facts = MovingStraggler(
        load_balance_moving=efficiency(part).load_balance_moving,
        excess_ms=one.excess_ms,
        phase_excess_ms=one.phases_ms[one.phase],
        gain=one.gain,
        steps=slow.last - one.since + 1,
        since_interval=None if one.is_exact else list(one.since_within),
        turn_steps=round(one.every) if one.every and one.every >= SHORT_TURN else None,
        work=one.work or None,
        least=float(counts.min()),
        most=float(counts.max()),
        mean=float(counts.mean()),
        has_counts=bool(part.samples.any()),
        may_be_forward=forward_may_be(one.phase, moment.evidence),
        world_size=len(slow.world.ranks),
    )
    acts = WORTH.reached(one.gain, held=held is not None and held.severity == "warn") and one.until is None
    return Detection(
        KIND, "warn" if acts else "info", facts, list(one.ranks), one.phase, one.since, one.until,
        one.cost_ms / facts.steps, cost_s=one.cost_ms / 1e3,
    )  # fmt: skip


def words(detection: Detection[MovingStraggler]) -> Words:
    """Return what it costs, and whether uneven work is why."""
    facts, since, until = detection.facts, detection.since_step or 0, detection.until_step
    over = f" {facts.phase_excess_ms:+.1f} ms {detection.phase}"
    if until is not None:
        lead = f"ranks were slow in turn from step {since:,} to {until:,}:"
        return Words(lead + over, None, f"ranks were slow in turn until step {until:,}", lead)
    if facts.work:
        lead = f"uneven {facts.work} make another rank slow each step:"
    elif facts.turn_steps:
        lead = f"ranks are slow in turn, each for some {facts.turn_steps:,} steps:"
    else:
        lead = "another rank is slow each step:"
    balance = f", load balance {facts.load_balance_moving:.0%}"
    text = fitting_parts(lead + over, (1, f"; {facts.gain:.2f}x if even"), (2, balance))
    return Words(text, caveat(_advice(detection), may_be_forward=facts.may_be_forward), lead=lead)


def _advice(detection: Detection[MovingStraggler]) -> str:
    facts, who = detection.facts, named_ranks(detection.ranks, detection.facts.world_size)
    if facts.work:
        return (
            f"Balance {facts.work} within a step: they go from {facts.least:,.0f} to {facts.most:,.0f} around"
            f" {facts.mean:,.0f}. Sort or bucket by length, or deal batches out by their sum."
        )
    sizes = "the sizes of batches were not measured"
    if facts.has_counts:
        is_alike = facts.most <= (1 + MORE_WORK.enter) * facts.least
        span = f"go from {facts.least:,.0f} to {facts.most:,.0f}, but are not why"
        sizes = f"the sizes of batches {'are alike' if is_alike else span}"
    if facts.turn_steps:
        steps = counted(facts.turn_steps, "step")
        return (
            f"Look at what moves from one rank to the next every {steps} on {who}: other programs on their cores or"
            f" GPUs, clocks that rise and fall, experts or shards that are in demand, a shared disk or network;"
            f" {sizes}. No rank is slow for good."
        )
    return (
        f"Look at what takes its turn in {detection.phase} on {who}: batches of uneven length, a shared disk, a"
        f" collection of garbage; {sizes}, and what it is was not measured."
    )


KIND = Kind(
    "moving_straggler",
    subject="world",
    gone="ranks no longer take turns in being slow",
    words=words,
    detect=detect,
    fewest_steps=1,
    by_cost=True,
    changes_level=True,
    slows="waiting for ranks that are slow in turn",
)
