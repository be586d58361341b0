"""Turns a slowdown into a finding: chooses the kind, computes gain and evidence, and looks for the cause."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Severity, Words
from ddpmon.analysis.processes.causes import Cause, Lateness, find_cause
from ddpmon.analysis.processes.conditions import lone_host, typical_conditions
from ddpmon.analysis.processes.data_readers import loading_facts, loading_samples
from ddpmon.analysis.processes.slow_lines import SlowLine, line_facts, line_of_ranks
from ddpmon.analysis.slowness.slowdown import WORTH, Scope, Slowdown
from ddpmon.analysis.statistics.arrays import row_medians
from ddpmon.analysis.statistics.excess import EXPLAINS, some_of
from ddpmon.analysis.steps.even_work import Even, Work, even_distribution, work_of
from ddpmon.analysis.steps.named_phases import NamedPhase, explaining_phase
from ddpmon.analysis.steps.what_if import gain_if_like_peers
from ddpmon.messages import OWN_PHASES, Episode, Finding, StackSamples

BEGINNING = 5
"""Number of steps that count as the beginning of a run. Usually, step 2 is the first step that all ranks report."""


def slow_ranks(moment: Moment, scopes: Collection[Scope]) -> Iterator[SlowRanks]:
    """Yield the slowdowns of these scopes that have steps in the window."""
    world = moment.longer or moment.world
    found = [one for one in moment.evidence.slowdowns if one.scope in scopes]
    for one in found:
        others = [other for other in found if other is not one and other.until is None and one.until is None]
        if one.until is None or one.until >= world.step[0]:
            yield SlowRanks(moment, one, sorted({rank for each in others for rank in each.ranks}.difference(one.ranks)))


class SlowRanks:
    """A slowdown with its gain, cause and evidence. Excesses and times are in ms per slow step."""

    def __init__(self, moment: Moment, slowdown: Slowdown, with_ranks: list[int]) -> None:
        """Find the steps of the slowdown, and the peers of its ranks.

        Args:
            moment: The moment of the judgement.
            slowdown: The slowdown.
            with_ranks: Other slow ranks, which have findings of their own.

        """
        self.moment, self.slowdown, self.with_ranks = moment, slowdown, with_ranks
        self.all_conditions = moment.evidence.conditions_by_rank
        self.world = world = moment.longer or moment.world
        self.is_all, self.world_size = slowdown.scope == "all", len(world.ranks)
        self.columns = [world.ranks.index(rank) for rank in slowdown.ranks]
        everyone = np.arange(len(world.ranks))
        peers = np.delete(everyone, [*self.columns, *map(world.ranks.index, with_ranks)])
        self.peers: list[int] = some_of(peers if len(peers) else np.delete(everyone, self.columns)).tolist()
        self.last = int(world.step[-1]) if slowdown.until is None else slowdown.until
        self.steps = self.last - slowdown.since + 1
        end = int(np.searchsorted(world.step, self.last, side="right"))
        begin = min(int(np.searchsorted(world.step, slowdown.since)), end - 1)
        self.part = world.steps_between(begin, end)
        """The steps of the slowdown in the window."""
        self.excess_ms = slowdown.phases_ms[slowdown.phase]
        """Excess in ms in the phase that has most of the excess."""
        self.mean_excess_ms = slowdown.excess_ms * slowdown.share
        """Excess of a mean step in ms."""
        self.since_interval = None if slowdown.is_exact else list(slowdown.since_within)
        """95% interval of the first step; None if the first step is exact."""
        self.from_the_start = slowdown.since <= BEGINNING
        # Time of an unmeasured forward pass is counted as `other`.
        self.may_be_forward = slowdown.phase == "other" and "forward" in moment.evidence.unmeasured
        about = (
            f for f in moment.before if f.ranks == list(slowdown.ranks) and "pattern" in f.evidence and f.is_lasting
        )
        self.before: Finding | None = next(about, None)
        """The finding about this slowdown in the previous judgement."""

    @cached_property
    def kind_name(self) -> str:
        """Return the name of the kind of finding that describes this slowdown."""
        one = self.slowdown
        if one.pattern in {"steps", "seconds"}:
            single_steps = one.pattern == "steps" and one.scope == "rank" and not one.stretches
            return "periodic_straggler" if single_steps else "late_in_bursts"
        names = {
            "all": "run_slowed",
            "host": "slow_host",
            "ranks": "several_stragglers",
            "rotating": "moving_straggler",
        }
        has_more = one.is_of_ranks and self._explained_by_work is not None
        return "load_imbalance" if has_more else names.get(one.scope, "straggler")

    def finding(self, kind: Kind, words: Callable[[SlowRanks], Words], facts: dict[str, Any] | None = None) -> Finding:
        """Return the finding about this slowdown.

        Args:
            kind: The kind of finding.
            words: Function that makes the words.
            facts: Evidence of the finding; None: `self.evidence`.

        """
        one = self.slowdown
        was_warning = self.before is not None and self.before.severity == "warn"
        acts = WORTH.is_reached(max(self.gain, self.gain_together), held=was_warning) and one.changed != "others"
        cost_ms = one.cost_ms * self.mendable_share
        of_slow_s = cost_ms / 1e3 / max(1.0, one.share * self.steps)
        episodes = [Episode(first, last, of_slow_s * (last - first + 1), [one.phase]) for first, last in one.stretches]
        severity: Severity = "warn" if acts and one.until is None else "info"
        return self.moment.finding(
            self.evidence if facts is None else facts, one.ranks, one.phase, kind=kind, severity=severity,
            words=words(self), since_step=one.since, until_step=one.until, cost_ms=cost_ms / max(1, self.steps),
            cost_s=cost_ms / 1e3, subject=self.subject, episodes=episodes,
        )  # fmt: skip

    @property
    def evidence(self) -> dict[str, Any]:
        """Return the evidence of the finding; unknown and normal values are None."""
        one, why, named, more = self.slowdown, self.process_cause, self.named_phase, self.more_work
        facts: dict[str, Any] = {
            "excess_ms": one.excess_ms,
            "phase_excess_ms": self.excess_ms,
            "gain": self.gain,
            "pattern": one.pattern,
            "steps": self.steps,
            "step_ms": float(self.part.step_ms.mean()),
            "share": round(one.share, 4) if round(one.share, 4) < 1 else None,
            "every": one.every,
            "since_interval": self.since_interval,
            "hidden_since": one.hidden_since,
            "changed": None if one.changed == "unknown" else one.changed,
            "increase_share": one.increase if self.is_all else None,
            "with_ranks": self.with_ranks or None,
            "gain_together": self.gain_together if self.with_ranks else None,
        }
        if self.is_all:
            return facts
        return facts | {
            "critical_share": self.part.waited_for(self.columns) or None,
            "peers_wait_ms": float(self.part.wait_ms[:, self.peers].mean()),
            "alone_gain": self.alone_gain,
            "starved_share": typical_conditions(self.conditions).starved_share if self.conditions else None,
            "host": self.host,
            "gc_ms": self.gc_ms,
            **(line_facts(self.slow_line) if self.slow_line else {}),
            **(loading_facts(self.loader_samples) if self.loader_samples else {}),
            **(why.evidence if why else {}),
            **({"cause" if why.began == "with" else "remark": why.name} if why and why.began != "unknown" else {}),
            **({"named": named.name, "named_ms": named.mine_ms, "peers_named_ms": named.peers_ms} if named else {}),
            **({more.unit: more.mine, f"peers_{more.unit}": more.theirs} if more else {}),
        }

    @property
    def mendable_share(self) -> float:
        """Return the share of the cost that even work would save; 1 if uneven work is not the cause."""
        return self.more_work.share if self.more_work else 1.0

    @property
    def gain(self) -> float:
        """Return the speedup if these ranks were as fast as the others, or all ranks as fast as before."""
        return self._with_mendable(self.slowdown.gain_alone)

    @property
    def gain_together(self) -> float:
        """Return the speedup if the other slow ranks were fixed as well."""
        return max(self.gain, self._with_mendable(self.slowdown.gain))

    def _with_mendable(self, gain: float) -> float:
        return 1 / (1 - (1 - 1 / max(1.0, gain)) * self.mendable_share)

    @cached_property
    def alone_gain(self) -> float | None:
        """Return the speedup if only the slowest of several ranks were fixed; None for another scope."""
        if self.slowdown.scope != "ranks":
            return None
        slowest = self.columns[int(self.part.own_ms[:, self.columns].mean(axis=0).argmax())]
        return max(1.0, gain_if_like_peers(self.part, slowest, seen=self.world))

    @property
    def conditions(self) -> list[Any]:
        """Return the measurements of the slow ranks' processes and devices over the last seconds."""
        return [self.all_conditions[rank] for rank in self.slowdown.ranks if rank in self.all_conditions]

    @property
    def subject(self) -> str:
        """Return the host or hosts if all of their ranks are slow; "" if the finding is about ranks."""
        return ", ".join(dict.fromkeys(one.host for one in self.conditions)) if self.slowdown.scope == "host" else ""

    @cached_property
    def _whole_host(self) -> tuple[str, int] | None:
        """Return the host whose ranks are all slow, and how many ranks it has; None in a run on a single host."""
        if self.slowdown.scope == "host":
            return self.subject, len(self.slowdown.ranks)
        return lone_host([*self.slowdown.ranks, *self.with_ranks], self.all_conditions)

    @property
    def host(self) -> str | None:
        """Return the host of all slow ranks, in a run on several hosts. A single slow rank must be the host's only
        rank.
        """
        there, everywhere = ({one.host for one in them} for them in (self.conditions, self.all_conditions.values()))
        if self.slowdown.scope == "ranks" and len(there) == 1 < len(everywhere):
            return there.pop()
        return self._whole_host[0] if self._whole_host else None

    @property
    def host_ranks(self) -> int:
        """Return the number of ranks on the host whose ranks are all slow; 0 if there is no such host."""
        return self._whole_host[1] if self._whole_host else 0

    @cached_property
    def gc_ms(self) -> float | None:
        """Return the excess time of garbage collection over the peers in ms if it is the cause, otherwise None."""
        if self.is_all:
            return None
        spent = self.part.gc_ms
        over = float(np.mean(row_medians(spent[:, self.columns]) - row_medians(spent[:, self.peers])))
        return over if over >= EXPLAINS.enter * self.mean_excess_ms else None

    @cached_property
    def process_cause(self) -> Cause | None:
        """Return the cause that distinguishes the processes or devices of slow ranks from their peers'; None if
        unknown.
        """
        one, part, now_us = self.slowdown, self.part, int(self.world.end_us[-1])
        if one.until is not None or self.kind_name not in {"straggler", "slow_host"} or self.gc_ms is not None:
            return None
        own, step = (float(values[:, self.columns].mean()) for values in (part.own_ms, part.length_ms))
        ago = (now_us - one.began_us[0], now_us - one.began_us[1]) if one.since > BEGINNING else None
        late = Lateness(one.ranks[0], one.phase, self.mean_excess_ms, own, step, self.subject, ago)
        return find_cause(late, one.ranks, self.all_conditions, [self.world.ranks[place] for place in self.peers])

    @cached_property
    def slow_line(self) -> SlowLine | None:
        """Return the line of code in which the ranks spend their excess; None if unknown."""
        one, samples = self.slowdown, self.moment.evidence.stack_samples
        if not samples or self.is_all or self.kind_name == "load_imbalance":
            return None
        slow = [*one.ranks, *self.with_ranks]
        return line_of_ranks(samples, slow, one.phase, one.since, self.excess_ms * one.share)

    @cached_property
    def loader_samples(self) -> StackSamples | None:
        """Return samples of the processes that load the data if the ranks are slow in the data phase, else None."""
        one = self.slowdown
        if self.is_all or one.phase != "data" or one.until is not None:
            return None
        return loading_samples(self.moment.evidence.stack_samples, one.ranks, one.since)

    @cached_property
    def named_phase(self) -> NamedPhase | None:
        """Return the named phase of the script in which the ranks are slow; None if there is none."""
        if self.is_all or not (times := self.moment.evidence.named):
            return None
        rank, *others = self.slowdown.ranks
        no_peers, steps = [*others, *self.with_ranks], (self.slowdown.since, self.last)
        return explaining_phase(times, self.world, rank, no_peers, steps, self.mean_excess_ms)

    @cached_property
    def _works(self) -> list[Work]:
        over_ms = np.array([self.slowdown.phases_ms[phase] for phase in OWN_PHASES])
        return [] if self.is_all else list(work_of(self.part, self.columns, self.peers, over_ms))

    @property
    def work(self) -> Work | None:
        """Return the work that differs most from the other ranks' work; None if none was counted."""
        return max(self._works, key=lambda work: abs(work.times - 1), default=None)

    @cached_property
    def _explained_by_work(self) -> Work | None:
        held = self.before is not None and self.before.kind == "load_imbalance"
        more = (work for work in self._works if work.times > 1 and not work.is_alike)
        return next((work for work in more if EXPLAINS.is_reached(work.share, held=held)), None)

    @property
    def more_work(self) -> Work | None:
        """Return the work that the ranks have more of than their peers if it is the cause, else None."""
        return self._explained_by_work if self.kind_name == "load_imbalance" else None

    @property
    def even_work(self) -> Even | None:
        """Return the work with which all ranks would arrive together if more work is the cause, else None."""
        return even_distribution(self.part, self.more_work.unit, self.columns[0]) if self.more_work else None


def has_company(finding: Finding) -> bool:
    """Return whether other ranks are slow at the same time."""
    return "with_ranks" in finding.evidence
