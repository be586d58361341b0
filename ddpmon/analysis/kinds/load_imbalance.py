"""A rank is late because it has more samples or tokens than the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddpmon.analysis.kinds.kind import Detection, Kind, Words, for_words
from ddpmon.analysis.kinds.late import Late, gain_words, has_company, late, over_words, severity
from ddpmon.analysis.kinds.late_ranks import MORE_WORK, Even, LateRanks, Work
from ddpmon.analysis.kinds.own_time import caveat
from ddpmon.analysis.words import fitting


@dataclass(frozen=True)
class LoadImbalance(Late):
    """Of a step: what the rank has to do, and what its peers have."""

    tokens: float | None = None
    peers_tokens: float | None = None
    samples: float | None = None
    peers_samples: float | None = None
    work: Work = for_words(Work("", 0.0, 1.0))
    mean_work: float = for_words(0.0)
    """Of all ranks."""
    even: Even | None = for_words(None)


def detected(one: LateRanks, work: Work) -> Detection[LoadImbalance]:
    """Return the finding about a rank that has more work. Even work gains what that accounts for, and no more."""
    own: dict[str, Any] = {work.unit: work.mine, f"peers_{work.unit}": work.theirs}
    mean = float(one.work(work.unit).mean())
    facts = LoadImbalance(**late(one, work.share), **own, work=work, mean_work=mean, even=one.even(work.unit))
    worth = severity(one, one.held(KIND), work.share)
    return Detection(KIND, worth, facts, [one.rank], one.phase, one.since, one.until, one.cost_ms(work.share))


def words(detection: Detection[LoadImbalance]) -> Words:
    """How much more it has, and what would be even."""
    if detection.until_step is not None:
        return over_words(detection)
    facts, rank, work = detection.facts, detection.ranks[0], detection.facts.work
    lead = f"rank {rank} has {work.times - 1:.0%} more {work.unit} a step:"
    tail, _ = gain_words(facts, "even")
    text = fitting(f"{lead} {facts.over_median_ms:+.1f} ms{tail}")
    return Words(text, caveat(facts, _advice(rank, facts)), lead=lead)


def _advice(rank: int, facts: LoadImbalance) -> str:
    work, even = facts.work, facts.even
    rest = f" (that is {work.share:.0%} of its excess; the rest is its own)" if 1 - work.share > MORE_WORK.enter else ""
    start = (
        f"Give every rank equal work: rank {rank} gets {work.mine:.0f} {work.unit} a step, the others"
        f" {work.theirs:.0f}{rest};"
    )
    if even is None:
        return f"{start} {facts.mean_work:.0f} each would be even."
    fewest, most = even.theirs
    span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"{start} ranks differ in what one of them takes, so that {even.mine} for rank {rank} and"
        f" {span} for the others would be even: {even.slowest_ms:.1f} ms for the slowest, not"
        f" {even.slowest_now_ms:.1f}."
    )


KIND = Kind(
    "load_imbalance",
    subject="rank",
    family="late",
    gone="{who} keep{s} up again",
    words=words,
    by_cost=True,
    changes_level=True,
    slows="rank {rank}'s larger share of the work",
    is_one_of_several=has_company,
)
