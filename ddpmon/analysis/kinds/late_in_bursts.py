"""A host or some ranks are slow again and again, in a rhythm, and keep up between: that is one finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.late import severity
from ddpmon.analysis.kinds.late_ranks import LateRanks, late_ranks
from ddpmon.analysis.kinds.own_time import SOME_STEPS, caveat, forward_may_be
from ddpmon.analysis.kinds.periodic_straggler import is_rhythm
from ddpmon.analysis.words import fitting, named_ranks

SHORT_S = 10.0
"""Seconds that are written with tenths, as far as they are fewer."""


@dataclass(frozen=True)
class LateInBursts:
    """While they are slow; gain: times as fast if they never were."""

    over_median_ms: float
    phase_excess_ms: float
    """Of the phase that has most of it."""
    every: float
    """From the beginning of one burst to that of the next, in `unit`."""
    unit: str
    """"steps" or "seconds"."""
    share: float
    """Of the steps, that are slow."""
    gain: float
    stretches: list[list[int]]
    """First and last step of the latest ones."""
    since_interval: list[int] | None = None
    """95% interval of the first step, where that is not exact."""
    is_host: bool = for_words(default=False)
    may_be_forward: bool = for_words(default=False)


def detect(moment: Moment) -> Iterator[Detection[LateInBursts]]:
    """One for each host, rank, and group of ranks with bursts."""
    for one in late_ranks(moment):
        if one.recurs and not (one.slowdown.scope == "rank" and is_rhythm(one)):
            yield _detected(one)


def _detected(one: LateRanks) -> Detection[LateInBursts]:
    told = one.slowdown
    is_host = told.scope == "host"
    name = one.conditions[one.rank].host if is_host else named_ranks(one.ranks, len(one.world.ranks))
    held = next((f for f in one.moment.held(KIND) if f.subject == name and f.lasts), None)
    facts = LateInBursts(
        over_median_ms=told.excess_ms,
        phase_excess_ms=told.phases_ms[one.phase],
        every=told.every or 0.0,
        unit=told.pattern,
        share=round(told.share, 4),
        gain=one.together,
        stretches=[[first, last] for first, last in told.stretches],
        since_interval=None if told.is_exact else list(told.since_within),
        is_host=is_host,
        may_be_forward=forward_may_be(one.phase, one.moment.evidence),
    )
    worth = severity(one, held)
    return Detection(KIND, worth, facts, one.ranks, one.phase, one.since, one.until, one.cost_ms(), subject=name)


def words(detection: Detection[LateInBursts]) -> Words:
    """Who, by how much, how often, and what it costs."""
    facts, name = detection.facts, detection.subject
    over = f"{facts.phase_excess_ms:+.1f} ms {detection.phase}"
    each, every = _length(facts.share * facts.every, facts.unit), _length(facts.every, facts.unit)
    often = f"{each} of {every} {facts.unit}"
    advice = caveat(
        facts,
        f"It comes back every {every} {facts.unit} or so, for {each}: look at what runs on"
        f" {name if facts.is_host else f'the machine of {name}'} as often: other programs, backups,"
        " checkpoints, monitoring, clocks that fall when it is hot.",
    )
    are, were = ("are", "were") if len(detection.ranks) > 1 and not facts.is_host else ("is", "was")
    if detection.until_step is not None:
        lead = f"{name} {were} slow in bursts from step {detection.since_step:,} to {detection.until_step:,}:"
        brief = f"{name} {were} slow until step {detection.until_step:,}"
        return Words(fitting(f"{lead} {over}"), advice, brief, lead)
    lead = f"{name} {are} slow in bursts:"
    return Words(fitting(f"{lead} {over}", f", {often}", f"; {facts.gain:.2f}x if fixed"), advice, lead=lead)


def _length(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit == "seconds" and value < SHORT_S else f"{value:,.0f}"


KIND = Kind(
    "late_in_bursts",
    subject="host",
    family="late",
    gone="{who} keep{s} up again",
    words=words,
    detect=detect,
    fewest_steps=SOME_STEPS,
    by_cost=True,
    slows="bursts of {host}",
)
