"""Slowdowns of ranks as kinds of findings need them: with their steps, and with what sets their ranks apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.processes.conditions import Cause, Lateness, cause, lone_host
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.statistics.arrays import Floats, medians
from ddpmon.analysis.statistics.excess import EXPLAINS, some_of
from ddpmon.analysis.steps.even_work import even_batches
from ddpmon.analysis.steps.what_if import gain
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES, Finding

MORE_WORK = Threshold(
    0.05,
    of="share that a late rank's samples or tokens exceed its peers' by",
    why="A judgement: own time follows at most twice that share, so that less than 4% makes no rank late (8%).",
)
_GROWING = [place for place, phase in enumerate(OWN_PHASES) if phase != "optimizer"]
"""Phases that take longer with more samples; the optimizer's step has as many parameters as ever."""
BEGINNING = 5
"""Steps that are the beginning of a run: the first one that all ranks tell of is the second, as a rule."""
ALIKE = Threshold(
    0.15,
    of="share by which the slowest rank takes longer for one sample than the fastest",
    why="A judgement: ranks that are equally fast differ by less; equal shares of work are even for them.",
)


@dataclass(frozen=True)
class Work:
    """What a late rank has to do, and what its peers have."""

    unit: str
    """"samples" or "tokens"."""
    mine: float
    theirs: float
    """Of a step."""
    share: float = 0.0
    """Of the rank's excess, that what it has more accounts for."""

    @property
    def times(self) -> float:
        """Times its peers' work that it has."""
        return self.mine / self.theirs

    @property
    def is_alike(self) -> bool:
        """Whether the difference is too small to matter."""
        return max(self.times, 1 / self.times) < 1 + MORE_WORK.enter


@dataclass(frozen=True)
class Even:
    """How a step's work would be even where ranks differ in what one sample or token takes."""

    mine: int
    theirs: tuple[int, int]
    """The fewest and the most of the other ranks."""
    slowest_ms: float
    """Own time of the slowest rank then."""
    slowest_now_ms: float


def late_ranks(moment: Moment) -> Iterator[LateRanks]:
    """Return the slowdowns of ranks of which the window has steps. One of several hosts is one of each of them."""
    world = moment.longer or moment.world
    present = [one for one in moment.evidence.slowdowns if one.scope in {"rank", "ranks", "host"}]
    for one in present:
        if one.until is not None and one.until < world.step[0]:
            continue
        besides = {
            rank for other in present if other is not one and other.until is None and one.until is None
            for rank in other.ranks
        }  # fmt: skip
        for ranks in _by_host(moment, one):
            partners = sorted({*besides, *one.ranks}.difference(ranks))
            yield LateRanks(moment, world, one, ranks, partners)


def _by_host(moment: Moment, one: Slowdown) -> list[tuple[int, ...]]:
    if one.scope != "host":
        return [one.ranks]
    by_host: dict[str, list[int]] = {}
    for rank in one.ranks:
        by_host.setdefault(moment.conditions[rank].host if rank in moment.conditions else "", []).append(rank)
    return [tuple(ranks) for ranks in by_host.values()]


class LateRanks:
    """Ranks that are slow together, with all that is known of them."""

    def __init__(
        self, moment: Moment, world: World, slowdown: Slowdown, ranks: Sequence[int], with_ranks: list[int]
    ) -> None:
        """Collect what is known. with_ranks: who else is slow."""
        self.moment, self.world, self.slowdown = moment, world, slowdown
        self.ranks, self.with_ranks = list(ranks), with_ranks
        self.conditions = moment.conditions
        column = {rank: place for place, rank in enumerate(world.ranks)}
        self.columns, self.partners = ([column[rank] for rank in some] for some in (ranks, with_ranks))
        everyone = np.arange(len(world.ranks))
        self.peers = np.delete(everyone, [*self.columns, *self.partners])
        if not len(self.peers):
            self.peers = np.delete(everyone, self.columns)
        self.some = some_of(self.peers)
        end = len(world) if self.until is None else int(np.searchsorted(world.step, self.until, side="right"))
        begin = min(int(np.searchsorted(world.step, self.since)), end - 1)
        self.part = world.between(begin, end)
        """Its steps in the window."""
        self.phases_ms = np.array([slowdown.phases_ms[phase] for phase in OWN_PHASES])

    @property
    def rank(self) -> int:
        """The first of them."""
        return self.ranks[0]

    @property
    def phase(self) -> str:
        """The phase with the largest excess."""
        return self.slowdown.phase

    @property
    def since(self) -> int:
        """The first step."""
        return self.slowdown.since

    @property
    def until(self) -> int | None:
        """The last step; None while it lasts."""
        return self.slowdown.until

    @property
    def recurs(self) -> bool:
        """Whether slow steps come again and again, with a rhythm."""
        return self.slowdown.pattern in {"steps", "seconds"}

    @property
    def slow_steps(self) -> float:
        """Return how many steps of one period are slow."""
        return self.slowdown.share * (self.slowdown.every or 0.0)

    @cached_property
    def alone(self) -> float:
        """How many times as fast the run would be if these were as fast as the others."""
        if len(self.ranks) == len(self.slowdown.ranks):
            return max(1.0, self.slowdown.gain_alone)
        return max(1.0, gain(self.part, self.columns, seen=self.world))

    @property
    def together(self) -> float:
        """The same if all that are slow were."""
        return max(self.alone, self.slowdown.gain)

    def cost_ms(self, share: float = 1.0) -> float:
        """Return what it costs of a step since it began, or what a share of its excess does."""
        last = int(self.world.step[-1]) if self.until is None else self.until
        return self.slowdown.cost_ms * share / max(1, last - self.since + 1)

    @property
    def over_ms(self) -> float:
        """Mean excess of its steps."""
        return self.slowdown.excess_ms * self.slowdown.share

    def held(self, *kinds: Kind[Any]) -> Finding | None:
        """Return the finding of some kinds about these ranks of last time."""
        told = (one for one in self.moment.held(*kinds) if one.until_step is None)
        return next((one for one in told if one.ranks == self.ranks), None)

    def _over_peers(self, values: Floats) -> Floats:
        over: Floats = medians(values[:, self.columns]) - medians(values[:, self.some])
        return over

    @property
    def host(self) -> tuple[str, int] | None:
        """The host that all slow ranks are on, and how many ranks it has, if no other rank is on it."""
        return lone_host([*self.ranks, *self.with_ranks], self.conditions)

    @property
    def starved_share(self) -> float | None:
        """The median of the ranks."""
        known = [self.conditions[rank].starved_share for rank in self.ranks if rank in self.conditions]
        shares = [share for share in known if share is not None]
        return float(np.median(shares)) if shares else None

    @cached_property
    def gc_ms(self) -> float | None:
        """What its garbage collection takes over its peers', where that is why it is slow."""
        gc = float(np.mean(self._over_peers(self.part.gc_ms)))
        return gc if gc >= EXPLAINS.enter * self.over_ms else None

    def cause(self, held: Finding | None, host: str = "") -> Cause | None:
        """Return what of their processes or devices sets the ranks apart. held: their finding of last time."""
        if self.until is not None:
            return None
        own, step = (float(values[:, self.columns].mean()) for values in (self.part.own_ms, self.part.length_ms))
        place = 0 if self.since <= BEGINNING else int(np.searchsorted(self.world.step, self.since))
        ago = int(self.world.end_us[-1] - self.world.end_us[place - 1]) if place > 0 else None
        before = held.evidence if held and self.since > BEGINNING else None
        lateness = Lateness(self.rank, self.phase, self.over_ms, own, step, host, ago, before)
        return cause(lateness, self.ranks, self.conditions, [self.world.ranks[one] for one in self.some.tolist()])

    @cached_property
    def works(self) -> list[Work]:
        """Tokens and samples of a step, its own and its peers', as far as they were counted."""
        peers_ms = np.median(np.median(self.part.phases_ms[:, self.some], axis=1), axis=0)
        works = []
        for unit in ("tokens", "samples"):
            counts = self.work(unit)
            mine, theirs = float(np.median(counts[self.columns])), float(np.median(counts[self.some]))
            if mine > 0 and theirs > 0:
                share = share_of_work(self.phases_ms, peers_ms, unit, mine / theirs)
                works.append(Work(unit, mine, theirs, share))
        return works

    def more_work(self, *, held: bool) -> Work | None:
        """Return what it has more of than its peers, if that is why it is slow. held: it was last time."""
        more = (one for one in self.works if one.times >= 1 + MORE_WORK.enter)
        return next((one for one in more if EXPLAINS.reached(one.share, held=held)), None)

    def work(self, unit: str) -> Floats:
        """[R] Samples or tokens of a step."""
        counts: Floats = (self.part.tokens if unit == "tokens" else self.part.samples).mean(axis=0)
        return counts

    def even(self, unit: str) -> Even | None:
        """None where ranks take equally long for equal work, or some have none."""
        counts = self.work(unit)
        item_ms = self.part.own_ms.mean(axis=0) / np.maximum(counts, 1e-9)
        if not (counts > 0).all() or item_ms.max() <= (1 + ALIKE.enter) * item_ms.min():
            return None
        even = even_batches(round(float(counts.sum())), item_ms.tolist())
        rest = sorted(even[column] for column in self.peers.tolist())
        slowest = max(count * ms for count, ms in zip(even, item_ms.tolist(), strict=True))
        return Even(even[self.columns[0]], (rest[0], rest[-1]), slowest, float((counts * item_ms).max()))

    @property
    def other_work(self) -> Work | None:
        """The size of its batches: what differs most from its peers'; None: nothing was counted."""
        return max(self.works, key=lambda one: abs(one.times - 1), default=None)


def share_of_work(over_ms: Floats, peers_ms: Floats, unit: str, times: float) -> float:
    """Return the share of an excess that more work accounts for: its peers' time for as much, in phases that grow.

    over_ms, peers_ms: [5] the excess and the peers' time of each phase. times: the peers' work that the rank has.
    Attention takes the square of a sequence's length.
    """
    power = 2 if unit == "tokens" else 1
    explained = np.minimum(over_ms, peers_ms * (times**power - 1))[_GROWING]
    return float(np.maximum(explained, 0.0).sum() / max(np.maximum(over_ms, 0.0).sum(), 1e-9))
