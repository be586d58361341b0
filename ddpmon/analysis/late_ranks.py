"""Findings about ranks that are late for a stretch: which phase, since when, what it costs, what it comes from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ddpmon.analysis.arrays import Floats
from ddpmon.analysis.conditions import Cause, Conditions, Lateness, cause, lone_host
from ddpmon.analysis.even_work import even_batches
from ddpmon.analysis.excess import some_of
from ddpmon.analysis.stragglers import Late, late
from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.what_if import gain
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import OWN_PHASES, Finding

KINDS = frozenset({"straggler", "load_imbalance"})
MORE_WORK = 0.05
FOLLOWS = 2.0
"""Own time that grows by more than so many times the work's share has another cause."""
WORTH = 1.02
"""Times faster if fixed: less is told, but no reason to act."""
ALIKE = 0.15
"""What one sample takes on ranks that are equally fast differs by less."""
CARRIES = 0.1
"""Of the excess: what the phase with the largest share has in the median step, where it is not mere long steps."""
HALF = 0.5
"""Share of the excess that a cause must account for."""


def late_ranks(
    world: World,
    before: Sequence[Finding] = (),
    conditions: Mapping[int, Conditions] | None = None,
    skip: Collection[int] = (),
) -> list[Finding]:
    """A finding for each rank that is late now, worst first, then for those that were a while ago.

    before: what was found last. conditions: what ranks' processes and devices did, by rank, where known. skip: columns
    whose lateness is told otherwise.
    """
    columns = {rank: column for column, rank in enumerate(world.ranks)}
    mine = [f for f in before if f.kind in KINDS and len(f.ranks) == 1 and f.ranks[0] in columns]
    known = {f.ranks[0]: f for f in mine if f.until_step is None}
    past = [f for f in mine if f.until_step is not None and f.until_step >= world.step[0]]
    over: dict[int, int] = {}
    for f in past:
        column, last = columns[f.ranks[0]], int(np.searchsorted(world.step, f.until_step or 0))
        over[column] = max(last, over.get(column, 0))
    stretches = late(world, [columns[rank] for rank in known], skip, over)
    now = [stretch for stretch in stretches if not stretch.over]
    found = []
    for stretch in stretches:
        rank = world.ranks[stretch.column]
        partners = [] if stretch.over else [other for other in now if other is not stretch]
        case = _Case(world, stretch, partners, known.get(rank), conditions or {})
        if case.phases_ms.max() >= CARRIES * stretch.over_ms:
            found.append(case.finding())
    return found + past


class _Case:
    """One late rank with all that is known of it."""

    def __init__(
        self,
        world: World,
        stretch: Late,
        partners: list[Late],
        known: Finding | None,
        conditions: Mapping[int, Conditions],
    ) -> None:
        self.world, self.stretch, self.known = world, stretch, known
        self.conditions = conditions
        self.column, self.rank = stretch.column, world.ranks[stretch.column]
        self.part = world.between(stretch.first, stretch.last + 1)
        self.partners = [other.column for other in partners]
        self.peers = np.delete(np.arange(len(world.ranks)), [stretch.column, *self.partners])
        if not len(self.peers):
            self.peers = np.delete(np.arange(len(world.ranks)), stretch.column)
        self.some = some_of(self.peers)
        self.phases_ms = np.median(self._over_peers(self.part.phases_ms), axis=0)
        self.phase = OWN_PHASES[int(self.phases_ms.argmax())]
        # While all of them are late: before that, fixing one alone did gain something.
        common = world.between(max(stretch.first, *(other.first for other in partners), 0), stretch.last + 1)
        # Chance may make it less than nothing.
        self.alone = max(1.0, gain(common, self.column, seen=world))
        together = gain(common, [self.column, *self.partners], seen=world) if partners else self.alone
        self.together = max(self.alone, together)
        starved = conditions[self.rank].starved_share if self.rank in conditions else None
        self.starved = starved
        self.host = lone_host([world.ranks[c] for c in (self.column, *self.partners)], conditions)

    def _over_peers(self, values: Floats) -> Floats:
        over: Floats = values[:, self.column] - np.median(values[:, self.some], axis=1)
        return over

    @property
    def since(self) -> int:
        if self.stretch.from_the_start and self.known and self.known.since_step is not None:
            return self.known.since_step
        return int(self.world.step[self.stretch.first])

    def finding(self) -> Finding:
        work = self._more_work()
        evidence: dict[str, Any] = {
            "own_ms": float(self.part.own_ms[:, self.column].mean()),
            "over_median_ms": self.stretch.over_ms,
            "phase_excess_ms": float(self.phases_ms.max()),
            "peers_wait_ms": float(self.part.wait_ms.mean(axis=0)[self.peers].mean()),
            "critical_share": float((self.part.critical == self.column).mean()),
            "gain": self.alone,
            "steps": len(self.part),
        }
        if self.partners:
            evidence |= {"with_ranks": [self.world.ranks[c] for c in self.partners], "gain_together": self.together}
        if self.starved is not None:
            evidence["starved_share"] = self.starved
        gc = float(np.mean(self._over_peers(self.part.gc_ms)))
        if gc >= HALF * self.stretch.over_ms:
            evidence["gc_ms"] = gc
        why = None
        if work:
            unit, mine, theirs = work
            evidence |= {unit: mine, f"peers_{unit}": theirs}
        elif not self.stretch.over and "gc_ms" not in evidence:
            why = self._cause()
        if why:
            evidence |= why.evidence | {"cause": why.name}
        if self.host:
            evidence["host"] = self.host[0]
        keep = 0.5 if self.known and self.known.severity == "warn" else 1.0
        worth = not self.stretch.over and self.together - 1 >= keep * (WORTH - 1)
        step_ms = float(self.part.step_ms.mean())
        return Finding(
            "load_imbalance" if work else "straggler",
            "warn" if worth else "info",
            self._text(work, why),
            [self.rank],
            self.phase,
            self.since,
            int(self.world.step[self.stretch.last]) if self.stretch.over else None,
            cost_ms=step_ms * (1 - 1 / self.together),
            evidence=evidence,
            advice=self._advice(work, evidence, why),
            brief=self._brief(),
        )

    def _cause(self) -> Cause | None:
        own, step = (float(values[:, self.column].mean()) for values in (self.part.own_ms, self.part.length_ms))
        lateness = Lateness(self.rank, self.phase, self.stretch.over_ms, own, step)
        return cause(lateness, self.conditions, [self.world.ranks[column] for column in self.some.tolist()])

    def _text(self, work: tuple[str, float, float] | None, why: Cause | None) -> str:
        over = float(self.phases_ms.max())
        if self.stretch.over:
            until = int(self.world.step[self.stretch.last])
            head = f"rank {self.rank} was slow from step {self.since:,} to {until:,}: {over:+.1f} ms {self.phase}"
            return fitting(head, " a step")
        if self.partners:
            others = rank_list([self.world.ranks[c] for c in self.partners], len(self.world.ranks))
            many = "s" if len(self.partners) > 1 else ""
            tail = f"; {self.together:.2f}x only if rank{many} {others} {'are' if many else 'is'} fixed too"
            short = f"; {self.together:.2f}x if all {len(self.partners) + 1} late ranks are fixed"
        else:
            tail, short = f"; {self.alone:.2f}x if {'even' if work else 'fixed'}", ""
        if work:
            unit, mine, theirs = work
            head = (
                f"rank {self.rank} has {mine / theirs - 1:.0%} more {unit} a step: {self.stretch.over_ms:+.1f} ms{tail}"
            )
            return fitting(head)
        head = f"rank {self.rank} is slow: {over:+.1f} ms {self.phase}"
        if why and len(head + why.short) <= len(fitting(head, why.short)):
            return fitting(head + why.short, tail, short)
        for middle, end in ((f" since step {self.since:,}", tail), ("", tail), ("", short)):
            if len(head + middle + end) <= len(fitting(head, middle, end)):
                return head + middle + end
        return fitting(head)

    def _brief(self) -> str:
        until = int(self.world.step[self.stretch.last])
        return f"rank {self.rank} was slow until step {until:,}" if self.stretch.over else ""

    def _more_work(self) -> tuple[str, float, float] | None:
        """Samples or tokens of a step, of the rank and of its peers, if it has more and its own time follows."""
        own = np.median(self.part.own_ms[:, self.column])
        slower = float(own / max(np.median(np.median(self.part.own_ms[:, self.some], axis=0)), 1e-9)) - 1
        most = FOLLOWS * (2 if self.known and self.known.kind == "load_imbalance" else 1)
        for unit, counts in (("tokens", self.part.tokens), ("samples", self.part.samples)):
            mine = float(counts[:, self.column].mean())
            theirs = float(np.median(counts[:, self.some].mean(axis=0)))
            if theirs > 0 and mine >= theirs * (1 + MORE_WORK) and slower <= most * (mine / theirs - 1):
                return unit, mine, theirs
        return None

    def _advice(self, work: tuple[str, float, float] | None, evidence: Mapping[str, Any], why: Cause | None) -> str:
        if self.stretch.over:
            return f"It is over: look at what else ran on rank {self.rank}'s machine then, and in its log."
        if work:
            return self._even(*work)
        if "gc_ms" in evidence:
            return (
                f"Python's garbage collector takes {evidence['gc_ms']:.1f} ms a step of rank {self.rank}: gc.freeze()"
                " before training, gc.disable() and gc.collect() every so many steps on all ranks at once."
            )
        there = ""
        if self.host:
            host, count = self.host
            all_of = f"All {count} ranks of {host} are late" if count > 1 else f"It is the only rank on {host}"
            there = f"{all_of}, and none elsewhere: look at that machine first. "
        if why:
            return there + why.advice
        return f"{there}{self._look()} {self._measured()}"

    def _even(self, unit: str, mine: float, theirs: float) -> str:
        counts = (self.part.tokens if unit == "tokens" else self.part.samples).mean(axis=0)
        start = f"Give every rank equal work: rank {self.rank} gets {mine:.0f} {unit} a step, the others {theirs:.0f};"
        item_ms = self.part.own_ms.mean(axis=0) / np.maximum(counts, 1e-9)
        if not (counts > 0).all() or item_ms.max() <= (1 + ALIKE) * item_ms.min():
            return f"{start} {counts.mean():.0f} each would be even."
        even = even_batches(round(float(counts.sum())), item_ms.tolist())
        rest = sorted(even[column] for column in self.peers.tolist())
        slowest = max(count * ms for count, ms in zip(even, item_ms.tolist(), strict=True))
        span = f"{rest[0]}" if rest[0] == rest[-1] else f"{rest[0]} to {rest[-1]}"
        return (
            f"{start} ranks differ in what one of them takes, so that {even[self.column]} for rank {self.rank} and"
            f" {span} for the others would be even: {slowest:.1f} ms for the slowest, not"
            f" {float((counts * item_ms).max()):.1f}."
        )

    def _look(self) -> str:
        if self.rank == 0 and self.phase == "other" and not self.host:
            return (
                f"Rank 0 alone is late between its steps: what a script does there on rank 0 only (printing, logging, a"
                f" progress bar, metrics) costs all ranks {float(self.phases_ms.max()):.1f} ms a step; done every tenth"
                f" step, {float(self.phases_ms.max()) / 10:.1f}."
            )
        return ADVICE[self.phase].format(rank=self.rank)

    def _measured(self) -> str:
        """What is known of the cause, and what is not."""
        counted = bool(self.part.samples.any() or self.part.tokens.any())
        work = "Its batches are as large as the others'" if counted else "The sizes of batches were not measured"
        core = "" if self.starved is None else f" and it waits {self.starved:.0%} of the time for a core"
        return f"{work}{core}; why it is slow was not measured."


ADVICE = {
    "data": "Look at what rank {rank}'s DataLoader does differently: its files, its disk, its workers.",
    "forward": "Look at what rank {rank}'s forward does differently: its inputs' sizes, its device, its CPU.",
    "backward": "Look at what rank {rank}'s backward does differently: its inputs' sizes, its device, its CPU.",
    "optimizer": "Look at what rank {rank} does around its optimizer's step: hooks, schedulers, its CPU.",
    "other": "Look at what rank {rank}'s loop does besides training: logging, checkpoints, evaluation.",
}
