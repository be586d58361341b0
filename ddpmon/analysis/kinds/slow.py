"""Slowdowns as findings: which kind each is, how grave it is, and what is known of it besides its description."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.conditions import Cause, Lateness, cause, lone_host, typical
from ddpmon.analysis.slowness.slowdown import WORTH, Scope, Slowdown
from ddpmon.analysis.statistics.arrays import medians
from ddpmon.analysis.statistics.excess import EXPLAINS, some_of
from ddpmon.analysis.steps.even_work import Even, Work, even, work_of
from ddpmon.analysis.steps.named import Named, explains
from ddpmon.analysis.steps.what_if import gain
from ddpmon.messages import OWN_PHASES, Episode, Finding

BEGINNING = 5
"""Steps that are the beginning of a run: the first one that all ranks report is the second, as a rule."""


def for_words(default: Any) -> Any:
    """Return a field of facts that sentences need and evidence has elsewhere."""
    return field(default=default, metadata={"for_words": True})


@dataclass(frozen=True)
class Slow:
    """Facts about a slowdown. Excesses are of a slow step; a gain is how many times as fast the run would be."""

    excess_ms: float
    """Own time beyond that of the other ranks; where all ranks are slow, the step beyond what it took before."""
    phase_excess_ms: float
    """Of that, in the phase of the finding."""
    gain: float
    """If these ranks were as fast as the others, or all ranks as fast as before."""
    pattern: str
    """"lasting", "stretch" (it is over), "steps", "seconds", "irregular" or "ramp"."""
    steps: int
    """From the first slow step on."""
    step_ms: float
    """Their mean length, of those that the window has."""
    share: float = 1.0
    """Of the steps, that are slow."""
    every: float | None = None
    """Steps or seconds from the beginning of one slow stretch to that of the next."""
    since_interval: list[int] | None = None
    """95% interval of the first step, where that is not exact."""
    hidden_since: int | None = None
    """From this step on noise is too large to tell whether it goes on."""
    changed: str | None = None
    """Who changed at the first step, "these" or "others"; None: not known."""
    increase_share: float | None = None
    """Of what the phase took before, where all ranks are slow."""
    critical_share: float = 0.0
    """Of the steps in which somebody waits, those that wait for one of these ranks."""
    peers_wait_ms: float | None = None
    with_ranks: list[int] | None = None
    """Ranks that are slow too, with findings of their own."""
    gain_together: float | None = None
    """If those were fixed as well."""
    alone_gain: float | None = None
    """Of several ranks: if only the slowest one were fixed."""
    starved_share: float | None = None
    """Of the time in which they wait for a core now, the median."""
    host: str | None = None
    """In a run on several: all slow ranks are there; of one rank or a host, all ranks there are slow."""
    gc_ms: float | None = None
    """What garbage collection takes beyond that of the others, where that is why."""
    why: Cause | None = for_words(None)
    """What of their processes or devices sets the ranks apart."""
    named: Named | None = for_words(None)
    """What the script calls the time in which the ranks are slow."""
    work: Work | None = for_words(None)
    """What differs most from the other ranks' work; None: nothing was counted."""
    more_work: Work | None = for_words(None)
    """More work, where that is why."""
    even: Even | None = for_words(None)
    has_stretches: bool = for_words(default=False)
    """Each time that it comes, several steps are slow."""
    from_the_start: bool = for_words(default=False)
    host_ranks: int = for_words(0)
    """Ranks on `host`."""
    world_size: int = for_words(0)
    may_be_forward: bool = for_words(default=False)

    @property
    def evidence(self) -> dict[str, Any]:
        """The facts by name, but for those of `for_words` and those at their default."""
        values = {one.name: (getattr(self, one.name), one.default) for one in fields(self) if not one.metadata}
        return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}


class Detection(NamedTuple):
    """A finding about a slowdown before it has words."""

    facts: Slow
    ranks: tuple[int, ...]
    phase: str
    since_step: int
    until_step: int | None
    subject: str = ""


def slow_ranks(moment: Moment, scopes: Collection[Scope]) -> Iterator[SlowRanks]:
    """Return the slowdowns of some scopes of which the window has steps."""
    world = moment.longer or moment.world
    found = [one for one in moment.evidence.slowdowns if one.scope in scopes]
    for one in found:
        others = [other for other in found if other is not one and other.until is None and one.until is None]
        if one.until is None or one.until >= world.step[0]:
            yield SlowRanks(moment, one, sorted({rank for each in others for rank in each.ranks}.difference(one.ranks)))


class SlowRanks:
    """A slowdown beside the steps of the window and the conditions of its ranks."""

    def __init__(self, moment: Moment, slowdown: Slowdown, with_ranks: list[int]) -> None:
        """Collect what is known. with_ranks: ranks that are slow too."""
        self.moment, self.slowdown, self.with_ranks = moment, slowdown, with_ranks
        self.world = world = moment.longer or moment.world
        self.columns = [world.ranks.index(rank) for rank in slowdown.ranks]
        everyone = np.arange(len(world.ranks))
        peers = np.delete(everyone, [*self.columns, *map(world.ranks.index, with_ranks)])
        self.peers: list[int] = some_of(peers if len(peers) else np.delete(everyone, self.columns)).tolist()
        self.last = int(world.step[-1]) if slowdown.until is None else slowdown.until
        end = int(np.searchsorted(world.step, self.last, side="right"))
        self.begin = min(int(np.searchsorted(world.step, slowdown.since)), end - 1)
        self.part = world.between(self.begin, end)
        """Its steps in the window."""
        self.over_ms = slowdown.excess_ms * slowdown.share
        """Excess of a mean step."""
        about = (f for f in moment.before if f.ranks == list(slowdown.ranks) and "pattern" in f.evidence and f.lasts)
        self.before: Finding | None = next(about, None)
        """The finding about it of last time."""

    @property
    def kind_name(self) -> str:
        """The kind of finding that it is."""
        one = self.slowdown
        if one.pattern in {"steps", "seconds"}:
            single_steps = one.pattern == "steps" and one.scope == "rank" and not one.stretches
            return "periodic_straggler" if single_steps else "late_in_bursts"
        names = {"all": "run_slowed", "host": "slow_host", "ranks": "several_stragglers"}
        return "load_imbalance" if one.scope != "all" and self.more_work else names.get(one.scope, "straggler")

    def finding(self, kind: Kind, words: Callable[[Detection], Words]) -> Finding:
        """Return the finding, with the words for it."""
        one, steps = self.slowdown, self.last - self.slowdown.since + 1
        more = self.more_work if kind.name == "load_imbalance" else None
        share = more.share if more else 1.0
        alone, together = (_share_of_gain(max(1.0, each), share) for each in (one.gain_alone, one.gain))
        held = self.before is not None and self.before.severity == "warn"
        acts = WORTH.reached(max(alone, together), held=held) and one.until is None and one.changed != "others"
        facts = self._facts() | {"gain": alone}
        if self.with_ranks:
            facts |= {"with_ranks": self.with_ranks, "gain_together": max(alone, together)}
        if more:
            facts |= {"more_work": more, "even": even(self.part, more.unit, self.columns[0])}
        cost_ms = one.cost_ms * share
        of_slow_s = cost_ms / 1e3 / max(1.0, one.share * steps)
        episodes = [Episode(first, last, of_slow_s * (last - first + 1), [one.phase]) for first, last in one.stretches]
        detection = Detection(Slow(**facts), one.ranks, one.phase, one.since, one.until, self.subject)
        return kind.finding(
            "warn" if acts else "info", words(detection), one.ranks, one.phase, since_step=one.since,
            until_step=one.until, evidence=detection.facts.evidence | _beside(facts), cost_ms=cost_ms / max(1, steps),
            cost_s=cost_ms / 1e3, subject=self.subject, episodes=episodes,
        )  # fmt: skip

    def _facts(self) -> dict[str, Any]:
        """Return what is known of any slowdown, then what ranks have in common that are slow against others."""
        one = self.slowdown
        facts: dict[str, Any] = {
            "excess_ms": one.excess_ms,
            "phase_excess_ms": one.phases_ms[one.phase],
            "pattern": one.pattern,
            "steps": self.last - one.since + 1,
            "step_ms": float(self.part.step_ms.mean()),
            "share": round(one.share, 4),
            "every": one.every,
            "has_stretches": bool(one.stretches),
            "since_interval": None if one.is_exact else list(one.since_within),
            "hidden_since": one.hidden_since,
            "changed": None if one.changed == "unknown" else one.changed,
            "from_the_start": one.since <= BEGINNING,
            "world_size": len(self.world.ranks),
            "may_be_forward": forward_may_be(one.phase, self.moment.evidence),
        }
        if one.scope == "all":
            return facts | {"increase_share": one.increase}
        facts |= {
            "critical_share": self.part.waited_for(self.columns),
            "peers_wait_ms": float(self.part.wait_ms[:, self.peers].mean()),
            "gc_ms": self._gc_ms,
            "why": self._cause,
            "work": max(self._works, key=lambda work: abs(work.times - 1), default=None),
        }
        if times := self.moment.evidence.named:
            rank, *others = one.ranks
            no_peers, steps = [*others, *self.with_ranks], (one.since, self.last)
            facts["named"] = explains(times, self.world, rank, no_peers, steps, self.over_ms)
        conditions = self.moment.conditions
        mine = [conditions[rank] for rank in one.ranks if rank in conditions]
        facts["starved_share"] = typical(mine).starved_share if mine else None
        there = {each.host for each in mine}
        lone = lone_host([*one.ranks, *self.with_ranks], conditions)
        if host := (self.subject, len(one.ranks)) if one.scope == "host" else lone:
            facts |= {"host": host[0], "host_ranks": host[1]}
        if one.scope == "ranks":
            if len(there) == 1 < len({each.host for each in conditions.values()}):
                facts["host"] = there.pop()
            slowest = self.columns[int(self.part.own_ms[:, self.columns].mean(axis=0).argmax())]
            facts["alone_gain"] = max(1.0, gain(self.part, slowest, seen=self.world))
        return facts

    @property
    def subject(self) -> str:
        """The host or the hosts whose ranks these are; "": it is about ranks."""
        conditions = self.moment.conditions
        if self.slowdown.scope != "host":
            return ""
        return ", ".join(dict.fromkeys(conditions[rank].host for rank in self.slowdown.ranks if rank in conditions))

    @cached_property
    def _gc_ms(self) -> float | None:
        spent = self.part.gc_ms
        over = float(np.mean(medians(spent[:, self.columns]) - medians(spent[:, self.peers])))
        return over if over >= EXPLAINS.enter * self.over_ms else None

    @cached_property
    def _cause(self) -> Cause | None:
        """What of their processes or devices sets the ranks apart."""
        one, part, now_us = self.slowdown, self.part, int(self.world.end_us[-1])
        if one.until is not None or self.kind_name not in {"straggler", "slow_host"} or self._gc_ms is not None:
            return None
        own, step = (float(values[:, self.columns].mean()) for values in (part.own_ms, part.length_ms))
        ago = (now_us - one.began_us[0], now_us - one.began_us[1]) if one.since > BEGINNING else None
        late = Lateness(one.ranks[0], one.phase, self.over_ms, own, step, self.subject, ago)
        return cause(late, one.ranks, self.moment.conditions, [self.world.ranks[place] for place in self.peers])

    @cached_property
    def _works(self) -> list[Work]:
        over_ms = np.array([self.slowdown.phases_ms[phase] for phase in OWN_PHASES])
        return list(work_of(self.part, self.columns, self.peers, over_ms))

    @cached_property
    def more_work(self) -> Work | None:
        """What the ranks have more of than their peers, if that explains most of the excess."""
        held = self.before is not None and self.before.kind == "load_imbalance"
        more = (work for work in self._works if work.times > 1 and not work.is_alike)
        return next((work for work in more if EXPLAINS.reached(work.share, held=held)), None)


def forward_may_be(phase: str, evidence: Evidence) -> bool:
    """Return whether time of this phase may be forward's, because forward is not measured and counts as other."""
    return phase == "other" and "forward" in evidence.unmeasured


def has_company(finding: Finding) -> bool:
    """Whether other ranks are slow too."""
    return "with_ranks" in finding.evidence


def _beside(facts: dict[str, Any]) -> dict[str, Any]:
    """Return evidence that only some slowdowns have: their cause, the name of the time, more work."""
    why, named, more = (facts.get(name) for name in ("why", "named", "more_work"))
    evidence = dict(why.evidence) if why else {}
    if why and why.began != "unknown":
        evidence["cause" if why.began == "with" else "remark"] = why.name
    if named:
        evidence |= {"named": named.name, "named_ms": named.mine_ms, "peers_named_ms": named.peers_ms}
    return evidence | ({more.unit: more.mine, f"peers_{more.unit}": more.theirs} if more else {})


def _share_of_gain(gain: float, share: float) -> float:
    """Return times as fast if that share of what is to be saved were saved."""
    return 1 / (1 - (1 - 1 / gain) * share)
