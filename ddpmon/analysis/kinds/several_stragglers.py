"""Several ranks are a little late, and mending one of them gains nothing: another leads then. Mending all does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Words, for_words
from ddpmon.analysis.kinds.late import pattern, severity, since_words
from ddpmon.analysis.kinds.late_ranks import BEGINNING, LateRanks
from ddpmon.analysis.kinds.own_time import caveat, forward_may_be
from ddpmon.analysis.steps.what_if import gain
from ddpmon.analysis.words import WIDTH, fitting, named_ranks
from ddpmon.messages import OWN_PHASES

ADVICE = {
    "data": "what their DataLoaders do that others do not: their files, their disk, their workers",
    "forward": "what their forwards have in common: inputs' sizes, the kind of device, its clocks, their cores",
    "backward": "what their backwards have in common: inputs' sizes, the kind of device, its clocks, their cores",
    "optimizer": "what they do around their optimizers' steps: hooks, schedulers, their cores",
    "other": "what their loops do besides training: logging, checkpoints, evaluation",
}
"""Advice by phase."""
MOST_ALONE = 8
"""Ranks of which it is worked out what mending one alone gains, at most: it is about the same for all."""


@dataclass(frozen=True)
class SeveralStragglers:
    """Of the late ranks the median; gain: times as fast if all of them were as fast as the others."""

    own_ms: float
    over_median_ms: float
    phase_excess_ms: float
    """Of that, in the phase that it is in."""
    peers_wait_ms: float
    critical_share: float
    """Of the steps in which somebody waits, those that wait for one of them."""
    gain: float
    alone_gain: float
    """If the one with which it gains most were as fast as the others."""
    steps: int
    step_ms: float
    """Their mean length."""
    each_ms: list[float]
    """By how much each is late, in the order of the ranks."""
    phases: list[str] | None = None
    """In which phase each is, where that differs."""
    host: str | None = None
    """They are all on it, in a run of several."""
    pattern: str | None = None
    since_interval: list[int] | None = None
    share: float = 1.0
    hidden_since: int | None = None
    changed: str | None = None
    """These five: see `Late`."""
    from_the_start: bool = for_words(default=False)
    world_size: int = for_words(0)
    may_be_forward: bool = for_words(default=False)


def detected(one: LateRanks) -> Detection[SeveralStragglers]:
    """Return the finding about ranks that became slow together."""
    part, held = one.part, next((f for f in one.moment.held(KIND) if f.lasts), None)
    over = part.phases_ms[:, one.columns] - np.median(part.phases_ms[:, one.some], axis=1, keepdims=True)
    each_ms = over.sum(axis=2).mean(axis=0)
    phases = [OWN_PHASES[place] for place in over.mean(axis=0).argmax(axis=1).tolist()]
    phase = one.phase if len(set(phases)) == 1 else None
    hosts = {one.conditions[rank].host for rank in one.ranks if rank in one.conditions}
    several_hosts = len({other.host for other in one.conditions.values()}) > 1
    last = int(one.world.step[-1]) if one.until is None else one.until
    facts = SeveralStragglers(
        own_ms=float(np.median(part.own_ms[:, one.columns].mean(axis=0))),
        over_median_ms=one.slowdown.excess_ms,
        phase_excess_ms=one.slowdown.phases_ms[one.phase],
        peers_wait_ms=float(part.wait_ms.mean(axis=0)[one.peers].mean()),
        critical_share=part.waited_for(one.columns),
        gain=one.together,
        alone_gain=max(1.0, *(gain(part, column, seen=one.world) for column in one.columns[:MOST_ALONE])),
        steps=last - one.since + 1,
        step_ms=float(part.step_ms.mean()),
        each_ms=[round(each, 3) for each in each_ms.tolist()],
        phases=None if phase else phases,
        host=hosts.pop() if several_hosts and len(hosts) == 1 else None,
        from_the_start=one.since <= BEGINNING,
        world_size=len(part.ranks),
        may_be_forward=forward_may_be(phase or "", one.moment.evidence),
        **pattern(one.slowdown),
    )
    return Detection(KIND, severity(one, held), facts, one.ranks, phase, one.since, one.until, one.cost_ms())


def words(detection: Detection[SeveralStragglers]) -> Words:
    """Which ranks, in which phase, by how much, and what mending all of them gains."""
    facts, ranks = detection.facts, named_ranks(detection.ranks, detection.facts.world_size)
    where = detection.phase or "in several phases"
    over = f"{facts.phase_excess_ms:+.1f} ms {where}"
    if detection.until_step is not None:
        lead = f"{ranks} were slow from step {detection.since_step:,} to {detection.until_step:,}:"
        brief = f"{ranks} were slow until step {detection.until_step:,}"
        advice = f"It is over: look at what {ranks} had in common then, and in their logs."
        return Words(fitting(f"{lead} {over}"), caveat(facts, advice), brief, lead)
    leads = {
        "irregular": f"{ranks} are slow in {facts.share:.0%} of steps, now and then:",
        "ramp": f"{ranks} become slower and slower:",
    }
    lead = leads.get(facts.pattern or "", f"{ranks} are slow:")
    begun = since_words(facts, detection.since_step)
    tail = f"; {facts.gain:.2f}x if {'both' if len(detection.ranks) == 2 else 'all'} are fixed"
    if facts.hidden_since is not None:
        begun, tail = f" until step {facts.hidden_since - 1:,}", "; since then noise hides it"
    whole = f"{lead} {over}{begun}{tail}"
    text = whole if len(whole) <= WIDTH else fitting(f"{lead} {over}", tail)
    return Words(text, caveat(facts, _advice(detection)), lead=lead)


def _advice(detection: Detection[SeveralStragglers]) -> str:
    facts = detection.facts
    where = f"They are all on {facts.host}. " if facts.host else ""
    common = (
        ADVICE[detection.phase] if detection.phase else "what these ranks have in common: their machine, device, data"
    )
    return (
        f"Mending one of them gains {facts.alone_gain:.2f}x at most, as another is the last then: mend"
        f" {'both' if len(detection.ranks) == 2 else 'all'}."
        f" {where}Look at {common}."
    )


KIND = Kind(
    "several_stragglers",
    subject="world",
    family="late",
    gone="{who} keep{s} up again",
    words=words,
    by_cost=True,
    changes_level=True,
    is_one_of_several=lambda _: True,
    slows="several ranks' {phase}",
)
