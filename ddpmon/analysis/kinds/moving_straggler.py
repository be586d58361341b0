"""A different rank is slow each time: no rank is slow for long, and yet every step waits for one."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.slow import SlowRanks, forward_may_be, slow_ranks
from ddpmon.analysis.kinds.slow_words import caveat
from ddpmon.analysis.slowness.slowdown import WORTH
from ddpmon.analysis.steps.even_work import MORE_WORK
from ddpmon.analysis.steps.summary import efficiency
from ddpmon.analysis.words import counted, fitting_parts, named_ranks
from ddpmon.messages import Finding

SHORT_TURN = 4
"""Steps of a turn from which on they are mentioned: of two ranks that are slow at random a turn has two."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Return the slowdowns that move from rank to rank."""
    for one in slow_ranks(moment, {"rotating"}):
        yield _finding(moment, one)


def _finding(moment: Moment, slow: SlowRanks) -> Finding:
    one, held, steps = slow.slowdown, moment.held_one(KIND), slow.last - slow.slowdown.since + 1
    balance, over = efficiency(slow.part).load_balance_moving, f" {one.phases_ms[one.phase]:+.1f} ms {one.phase}"
    turn_steps = round(one.every) if one.every and one.every >= SHORT_TURN else None
    brief, advice = "", None
    if one.until is not None:
        lead = f"ranks were slow in turn from step {one.since:,} to {one.until:,}:"
        text, brief = lead + over, f"ranks were slow in turn until step {one.until:,}"
    else:
        lead = "another rank is slow each step:"
        if one.work:
            lead = f"uneven {one.work} make another rank slow each step:"
        elif turn_steps:
            lead = f"ranks are slow in turn, each for some {turn_steps:,} steps:"
        text = fitting_parts(lead + over, (1, f"; {one.gain:.2f}x if even"), (2, f", load balance {balance:.0%}"))
        may_be_forward = forward_may_be(one.phase, moment.evidence)
        advice = caveat(_advice(slow, turn_steps), may_be_forward=may_be_forward)
    acts = WORTH.reached(one.gain, held=held is not None and held.severity == "warn") and one.until is None
    return KIND.finding(
        "warn" if acts else "info",
        Words(text, advice, brief, lead),
        one.ranks,
        one.phase,
        evidence={
            "load_balance_moving": balance,
            "excess_ms": one.excess_ms,
            "phase_excess_ms": one.phases_ms[one.phase],
            "gain": one.gain,
            "steps": steps,
        },
        beside={
            "since_interval": None if one.is_exact else list(one.since_within),
            "turn_steps": turn_steps,
            "work": one.work or None,
        },
        since_step=one.since,
        until_step=one.until,
        cost_ms=one.cost_ms / steps,
        cost_s=one.cost_ms / 1e3,
    )


def _advice(slow: SlowRanks, turn_steps: int | None) -> str:
    one, who = slow.slowdown, named_ranks(slow.slowdown.ranks, len(slow.world.ranks))
    counts = slow.part.tokens if one.work == "tokens" else slow.part.samples
    span = f"go from {counts.min():,.0f} to {counts.max():,.0f}"
    if one.work:
        return (
            f"Balance {one.work} within a step: they {span} around {counts.mean():,.0f}. Sort or bucket by length, or"
            " deal batches out by their sum."
        )
    sizes = "the sizes of batches were not measured"
    if counts.any():
        is_alike = counts.max() <= (1 + MORE_WORK.enter) * counts.min()
        sizes = f"the sizes of batches {'are alike' if is_alike else f'{span}, but are not why'}"
    if turn_steps:
        return (
            f"Look at what moves from one rank to the next every {counted(turn_steps, 'step')} on {who}: other programs"
            " on their cores or GPUs, clocks that rise and fall, experts or shards that are in demand, a shared disk or"
            f" network; {sizes}. No rank is slow for good."
        )
    return (
        f"Look at what takes its turn in {one.phase} on {who}: batches of uneven length, a shared disk, a"
        f" collection of garbage; {sizes}, and what it is was not measured."
    )


KIND = Kind(
    "moving_straggler",
    gone="ranks no longer take turns in being slow",
    detect=detect,
    fewest_steps=1,
    by_cost=True,
    changes_level=True,
    slows="waiting for ranks that are slow in turn",
)
