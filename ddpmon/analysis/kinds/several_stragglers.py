"""Several ranks are a little late, and mending one of them gains nothing: another leads then. Mending all does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.late import leads
from ddpmon.analysis.kinds.late_ranks import BEGINNING, LateRank, over_for_each
from ddpmon.analysis.kinds.late_together import LateTogether, late_together, of_last_time
from ddpmon.analysis.kinds.own_time import SOME_STEPS, WORTH, caveat, forward_may_be
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.words import WIDTH, fitting, named_ranks
from ddpmon.messages import Finding

ADVICE = {
    "data": "what their DataLoaders do that others do not: their files, their disk, their workers",
    "forward": "what their forwards have in common: inputs' sizes, the kind of device, its clocks, their cores",
    "backward": "what their backwards have in common: inputs' sizes, the kind of device, its clocks, their cores",
    "optimizer": "what they do around their optimizers' steps: hooks, schedulers, their cores",
    "other": "what their loops do besides training: logging, checkpoints, evaluation",
}
"""Advice by phase."""


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
    from_the_start: bool = for_words(default=False)
    world_size: int = for_words(0)
    may_be_forward: bool = for_words(default=False)


class Several:
    """The late ranks of last time that were one finding, and those that are one now."""

    def __init__(self, moment: Moment, world: World) -> None:
        self.moment, self.world = moment, world
        held = moment.held(KIND)
        self._past = [f for f in held if f.until_step is not None and f.until_step >= world.step[0]]
        lasting = next((f for f in held if f.lasts), None)
        before = of_last_time(world, lasting) if lasting else None
        self._ended = before if before and before.stretch.over else None
        self._before = None if self._ended else before
        self._now: LateTogether | None = None

    @property
    def over(self) -> list[Finding]:
        """For each rank of those that were late together for a while: that it is over."""
        past = [(f.ranks, f.until_step) for f in self._past]
        past += [(self._ended.ranks, self._ended.until)] if self._ended else []
        return over_for_each(KIND.name, past, self.world)

    def take(self, ranks: Sequence[LateRank], skip: Sequence[int]) -> list[LateRank]:
        """Those of the late ranks that are not late together with others. skip: columns of other kinds."""
        group = late_together(self.world, self._before, ranks, self.moment.conditions, skip)
        if group and (self._before or (WORTH.reached(group.together) and leads(group.part, group.columns))):
            self._now = group
        columns = self._now.columns if self._now else []
        return [one for one in ranks if one.column not in columns]

    def detected(self) -> Iterator[Detection[SeveralStragglers] | Finding]:
        """The finding about those that are late now, or no longer are, and those of last time that are over."""
        for group in (self._now, self._ended):
            if group:
                yield self._detection(group)
        yield from self._past

    def _detection(self, group: LateTogether) -> Detection[SeveralStragglers]:
        part, phase = group.part, group.phase
        conditions = self.moment.conditions
        hosts = {conditions[rank].host for rank in group.ranks if rank in conditions}
        several_hosts = len({one.host for one in conditions.values()}) > 1
        facts = SeveralStragglers(
            own_ms=float(np.median(part.own_ms[:, group.columns].mean(axis=0))),
            over_median_ms=group.over_ms,
            phase_excess_ms=group.phase_ms,
            peers_wait_ms=float(part.wait_ms.mean(axis=0)[group.peers].mean()),
            critical_share=part.waited_for(group.columns),
            gain=group.together,
            alone_gain=group.alone,
            steps=len(part),
            step_ms=float(part.step_ms.mean()),
            each_ms=[round(each, 3) for each in group.each_ms.tolist()],
            phases=None if phase else group.phases,
            host=hosts.pop() if several_hosts and len(hosts) == 1 else None,
            from_the_start=group.since <= BEGINNING,
            world_size=len(part.ranks),
            may_be_forward=forward_may_be(phase or "", self.moment.evidence),
        )
        held = group.held is not None and group.held.severity == "warn"
        return Detection(
            KIND,
            "warn" if not group.stretch.over and WORTH.reached(group.together, held=held) else "info",
            facts,
            group.ranks,
            phase,
            group.since,
            group.until,
            facts.step_ms * (1 - 1 / group.together),
        )


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
    lead = f"{ranks} are slow:"
    begun = " from the start" if facts.from_the_start else f" since step {detection.since_step:,}"
    tail = f"; {facts.gain:.2f}x if {'both' if len(detection.ranks) == 2 else 'all'} are fixed"
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
    fewest_steps=SOME_STEPS,
    by_cost=True,
    changes_level=True,
    is_one_of_several=lambda _: True,
    slows="several ranks' {phase}",
)
