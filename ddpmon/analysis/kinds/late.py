"""What kinds about one rank that is late for a stretch of steps have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Words, for_words
from ddpmon.analysis.kinds.late_ranks import BEGINNING, LateRanks
from ddpmon.analysis.kinds.own_time import WORTH, caveat, forward_may_be
from ddpmon.analysis.processes.conditions import Cause
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

NEARLY_EXACT = 4
"""Steps that an interval of the first step spans at most, where sentences give that step without "about"."""


class Facts(Protocol):
    """Facts that say when it began."""

    @property
    def from_the_start(self) -> bool:
        """Of the run."""

    @property
    def since_interval(self) -> list[int] | None:
        """See `Late`."""

    @property
    def changed(self) -> str | None:
        """See `Late`."""


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
    pattern: str | None = None
    """"lasting", "stretch" (it is over), "ramp" (slower and slower) or "irregular". Kinds about periods name others."""
    since_interval: list[int] | None = None
    """95% interval of the first step, where that is not exact."""
    share: float = 1.0
    """Of its steps, that are slow."""
    hidden_since: int | None = None
    """From this step on noise is too large to tell whether it goes on."""
    changed: str | None = None
    """Who changed at the first step, "these" or "others"; None: not known."""
    starved_share: float | None = None
    gc_ms: float | None = None
    """What its garbage collection takes over its peers', where that is why."""
    host: str | None = None
    """All ranks there are late, and none elsewhere."""
    from_the_start: bool = for_words(default=False)
    """Of the run."""
    world_size: int = for_words(0)
    may_be_forward: bool = for_words(default=False)


def late(one: LateRanks, share: float = 1.0) -> dict[str, Any]:
    """The fields of a Late. share: of its excess, that would be gained."""
    told = one.slowdown
    last = int(one.world.step[-1]) if one.until is None else one.until
    return {
        "own_ms": float(np.median(one.part.own_ms[:, one.columns].mean(axis=0))),
        "over_median_ms": told.excess_ms,
        "phase_excess_ms": told.phases_ms[one.phase],
        "peers_wait_ms": float(one.part.wait_ms.mean(axis=0)[one.peers].mean()),
        "critical_share": one.part.waited_for(one.columns),
        "gain": _share_of_gain(one.alone, share),
        "steps": last - one.since + 1,
        "step_ms": float(one.part.step_ms.mean()),
        "with_ranks": one.with_ranks or None,
        "gain_together": _share_of_gain(one.together, share) if one.partners else None,
        **pattern(told),
        "starved_share": one.starved_share,
        "host": one.host[0] if one.host else None,
        "from_the_start": one.since <= BEGINNING,
        "world_size": len(one.world.ranks),
        "may_be_forward": forward_may_be(one.phase, one.moment.evidence),
    }


def pattern(told: Slowdown) -> dict[str, Any]:
    """The fields that say in which pattern ranks are slow, and how sure the first step is."""
    return {
        "pattern": told.pattern,
        "since_interval": None if told.is_exact else list(told.since_within),
        "share": round(told.share, 4),
        "hidden_since": told.hidden_since,
        "changed": None if told.changed == "unknown" else told.changed,
    }


def since_words(facts: Facts, since: int | None) -> str:
    """When it began, as exactly as that is known."""
    if facts.from_the_start:
        return " from the start"
    around = "" if facts.since_interval is None or np.ptp(facts.since_interval) <= NEARLY_EXACT else "about "
    begun = " since the others became faster at" if facts.changed == "others" else " since"
    return f"{begun} {around}step {since:,}"


def names(why: Cause | None) -> dict[str, Any]:
    """The fields that name a cause, or what is only a remark."""
    fields = {"with": "cause", "apart": "remark"}
    return {fields[why.began]: why.name} if why and why.began in fields else {}


def severity(one: LateRanks, held: Finding | None, share: float = 1.0) -> Literal["info", "warn"]:
    """A warning where mending it, or that share of its excess, is worth it. held: its finding of last time.

    None where it is as fast as before and the others became faster.
    """
    was = held is not None and held.severity == "warn"
    worth = WORTH.reached(_share_of_gain(one.together, share), held=was)
    return "warn" if worth and one.until is None and one.slowdown.changed != "others" else "info"


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
