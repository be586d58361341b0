"""What kinds about one rank that is late for a stretch of steps have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds.kind import Detection, Words, for_words
from ddpmon.analysis.kinds.late_ranks import BEGINNING, LateRank
from ddpmon.analysis.kinds.own_time import WORTH, caveat, forward_may_be
from ddpmon.analysis.processes.conditions import Cause
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

LEADS = Threshold(
    1.25,
    of="times its share of the steps by chance in which a rank is the one that all wait for",
    why="A judgement: ranks that are alike are the last equally often, give or take what hundreds of steps show.",
)


@dataclass(frozen=True)
class Late:
    """How late the rank is; gain: times as fast if it were as fast as its peers."""

    own_ms: float
    over_median_ms: float
    phase_excess_ms: float
    """Of that, in the phase of the finding."""
    peers_wait_ms: float
    critical_share: float
    """Of the steps in which somebody waits, those that wait for it."""
    gain: float
    steps: int
    step_ms: float
    """Their mean length."""
    with_ranks: list[int] | None = None
    """Who is late too."""
    gain_together: float | None = None
    """If all of them were as fast as the rest."""
    starved_share: float | None = None
    gc_ms: float | None = None
    """What its garbage collection takes over its peers', where that is why."""
    host: str | None = None
    """All ranks there are late, and none elsewhere."""
    from_the_start: bool = for_words(default=False)
    """Of the run."""
    world_size: int = for_words(0)
    may_be_forward: bool = for_words(default=False)


def late(one: LateRank, evidence: Evidence, share: float = 1.0) -> dict[str, Any]:
    """The fields of a Late. share: of its excess, that would be gained."""
    return {
        "own_ms": float(one.part.own_ms[:, one.column].mean()),
        "over_median_ms": one.stretch.over_ms,
        "phase_excess_ms": float(one.phases_ms.max()),
        "peers_wait_ms": float(one.part.wait_ms.mean(axis=0)[one.peers].mean()),
        "critical_share": one.part.waited_for(one.column),
        "gain": _share_of_gain(one.alone, share),
        "steps": len(one.part),
        "step_ms": float(one.part.step_ms.mean()),
        "with_ranks": one.with_ranks or None,
        "gain_together": _share_of_gain(one.together, share) if one.partners else None,
        "starved_share": one.starved_share,
        "gc_ms": one.gc_ms,
        "host": one.host[0] if one.host else None,
        "from_the_start": one.since <= BEGINNING,
        "world_size": len(one.world.ranks),
        "may_be_forward": forward_may_be(one.phase, evidence),
    }


def names(why: Cause | None) -> dict[str, Any]:
    """The fields that name a cause, or what is only a remark."""
    fields = {"with": "cause", "apart": "remark"}
    return {fields[why.began]: why.name} if why and why.began in fields else {}


def severity(one: LateRank, share: float = 1.0) -> Literal["info", "warn"]:
    """A warning where mending it, or that share of its excess, is worth it."""
    held = one.held is not None and one.held.severity == "warn"
    worth = WORTH.reached(_share_of_gain(one.together, share), held=held)
    return "warn" if worth and not one.stretch.over else "info"


def is_worth_telling(one: LateRank) -> bool:
    """Whether mending it, or all that are late with it, gains enough, and the world waits for them more than by chance.

    A finding of last time stays what it was: its end is another matter.
    """
    if one.held:
        return True
    return WORTH.reached(one.together) and leads(one.part, [one.column, *one.partners])


def leads(part: World, columns: Sequence[int]) -> bool:
    """Whether the world waits for these more than it would by chance."""
    chance = len(columns) / len(part.ranks)
    return part.waited_for(columns) >= min(LEADS.enter * chance, (1 + chance) / 2)


def cost_ms(one: LateRank, share: float = 1.0) -> float:
    """Of a step, that the rank's excess costs, or a share of it."""
    return float(one.part.step_ms.mean()) * (1 - 1 / one.together) * share


def _share_of_gain(gain: float, share: float) -> float:
    """Times as fast if that share of what is to be saved were saved."""
    return 1 / (1 - (1 - 1 / gain) * share)


def has_company(finding: Finding) -> bool:
    """Whether other ranks are late too."""
    return "with_ranks" in finding.evidence


def gain_words(facts: Late, otherwise: str, late: int = 1) -> tuple[str, str]:
    """What mending it gains, and the same in fewer words.

    otherwise: what is to be done where it alone is late. late: how many ranks it is.
    """
    if facts.with_ranks is None or facts.gain_together is None:
        return f"; {facts.gain:.2f}x if {otherwise}", ""
    many, count = len(facts.with_ranks) > 1, len(facts.with_ranks) + late
    others = f"{named_ranks(facts.with_ranks, facts.world_size)} {'are' if many else 'is'}"
    return (
        f"; {facts.gain_together:.2f}x only if {others} fixed too",
        f"; {facts.gain_together:.2f}x if {'both' if count == 2 else f'all {count}'} late ranks are fixed",
    )


def over_words(detection: Detection[Any]) -> Words:
    """What was the matter with a rank that keeps up again."""
    rank, until = detection.ranks[0], detection.until_step
    lead = f"rank {rank} was slow from step {detection.since_step:,} to {until:,}:"
    text = fitting(f"{lead} {detection.facts.phase_excess_ms:+.1f} ms {detection.phase}", " a step")
    advice = f"It is over: look at what else ran on rank {rank}'s machine then, and in its log."
    return Words(text, caveat(detection.facts, advice), f"rank {rank} was slow until step {until:,}", lead)
