"""Ranks that are late for a stretch of steps: in which phase, since when, what it costs, what sets them apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ddpmon.analysis.processes.conditions import Cause, Conditions, Lateness, cause, lone_host
from ddpmon.analysis.statistics.arrays import Floats, medians
from ddpmon.analysis.statistics.excess import EXPLAINS, some_of
from ddpmon.analysis.steps.even_work import even_batches
from ddpmon.analysis.steps.stragglers import late
from ddpmon.analysis.steps.stretches import LateStretch
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
CARRIES = Threshold(
    0.1,
    of="share of the excess that the phase with the most of it has in the median step",
    why="A judgement: where no phase has that, a few long steps are the excess, and no phase is to be named.",
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


def late_ranks(
    world: World,
    held: Sequence[Finding],
    over: Sequence[Finding],
    conditions: Mapping[int, Conditions],
    had_more_work: Collection[int],
    skip: Collection[int],
    besides: Sequence[LateStretch] = (),
) -> Iterator[LateRank]:
    """Each rank that is late now, worst first, then those that were a while ago.

    held, over: findings of last time about late ranks, those that last and those that are over. conditions: by rank.
    had_more_work: ranks of which that was said last time. skip: columns whose lateness is another kind's. besides: what
    of that is late now.
    """
    columns = {rank: column for column, rank in enumerate(world.ranks)}
    lasting = {f.ranks[0]: f for f in held}
    ended: dict[int, int] = {}
    for f in over:
        column, last = columns[f.ranks[0]], int(np.searchsorted(world.step, f.until_step or 0))
        ended[column] = max(last, ended.get(column, 0))
    since = {columns[rank]: index_of(world, f.since_step) for rank, f in lasting.items()}
    stretches = late(world, since, [*skip, *(other.column for other in besides)], ended)
    now = [*(stretch for stretch in stretches if not stretch.over), *besides]
    for stretch in stretches:
        partners = [] if stretch.over else [other for other in now if other is not stretch]
        rank = world.ranks[stretch.column]
        one = LateRank(world, stretch, partners, lasting.get(rank), conditions, had_more_work=rank in had_more_work)
        if one.phases_ms.max() >= CARRIES.enter * stretch.over_ms:
            yield one


def over_for_each(kind: str, past: Iterable[tuple[Sequence[int], int | None]], world: World) -> list[Finding]:
    """For each of ranks that were late together, that it is over. past: who they are, and until which step."""
    return [
        Finding(kind, "info", "", [rank], until_step=until)
        for ranks, until in past
        for rank in ranks
        if rank in world.ranks
    ]


def index_of(world: World, step: int | None) -> int:
    """Index of a step in the window; -1: it was before that, or nobody knows which one it is."""
    return -1 if step is None or step < world.step[0] else int(np.searchsorted(world.step, step))


def share_of_work(over_ms: Floats, peers_ms: Floats, unit: str, times: float) -> float:
    """Return the share of an excess that more work accounts for: its peers' time for as much, in phases that grow.

    over_ms, peers_ms: [5] the excess and the peers' time of each phase. times: the peers' work that the rank has.
    Attention takes the square of a sequence's length.
    """
    power = 2 if unit == "tokens" else 1
    explained = np.minimum(over_ms, peers_ms * (times**power - 1))[_GROWING]
    return float(np.maximum(explained, 0.0).sum() / max(np.maximum(over_ms, 0.0).sum(), 1e-9))


class LateForAWhile:
    """What is late for a stretch of steps: a rank, a host, several ranks."""

    world: World
    stretch: LateStretch
    held: Finding | None
    """Its finding of last time, if that goes on."""

    @property
    def since(self) -> int:
        """The first step."""
        return self.stretch.since(self.world, self.held.since_step if self.held else None)

    @property
    def until(self) -> int | None:
        """The last step; None while it lasts."""
        return self.stretch.until(self.world)

    @property
    def began_us_ago(self) -> int | None:
        """How long before the last step it began; None: with the first step that is known, or before."""
        first = 0 if self.since <= BEGINNING else index_of(self.world, self.since)
        return int(self.world.end_us[-1] - self.world.end_us[first - 1]) if first > 0 else None

    @property
    def found_before(self) -> Mapping[str, Any] | None:
        """The evidence of its finding of last time, where it began long ago, but not with the run."""
        return self.held.evidence if self.held and self.since > BEGINNING else None


class LateRank(LateForAWhile):
    """One late rank with all that is known of it."""

    def __init__(
        self,
        world: World,
        stretch: LateStretch,
        partners: list[LateStretch],
        held: Finding | None,
        conditions: Mapping[int, Conditions],
        *,
        had_more_work: bool,
    ) -> None:
        self.had_more_work = had_more_work
        self.world, self.stretch, self.held = world, stretch, held
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
        self.starved_share = conditions[self.rank].starved_share if self.rank in conditions else None
        self.host = lone_host([self.rank, *self.with_ranks], conditions)

    def _over_peers(self, values: Floats) -> Floats:
        over: Floats = values[:, self.column] - medians(values[:, self.some])
        return over

    @property
    def with_ranks(self) -> list[int]:
        """Who is late too."""
        return [self.world.ranks[column] for column in self.partners]

    @cached_property
    def gc_ms(self) -> float | None:
        """What its garbage collection takes over its peers', where that is why it is late."""
        gc = float(np.mean(self._over_peers(self.part.gc_ms)))
        return gc if gc >= EXPLAINS.enter * self.stretch.over_ms else None

    @cached_property
    def cause(self) -> Cause | None:
        """What of its process or device sets it apart, where nothing else is why it is late."""
        if self.more_work or self.stretch.over or self.gc_ms is not None:
            return None
        own, step = (float(values[:, self.column].mean()) for values in (self.part.own_ms, self.part.length_ms))
        lateness = Lateness(
            self.rank, self.phase, self.stretch.over_ms, own, step,
            began_us_ago=self.began_us_ago, found_before=self.found_before,
        )  # fmt: skip
        peers = [self.world.ranks[column] for column in self.some.tolist()]
        return cause(lateness, [self.rank], self.conditions, peers)

    @cached_property
    def works(self) -> list[Work]:
        """Tokens and samples of a step, its own and its peers', as far as they were counted."""
        peers_ms = np.median(np.median(self.part.phases_ms[:, self.some], axis=1), axis=0)
        works = []
        for unit in ("tokens", "samples"):
            counts = self.work(unit)
            mine, theirs = float(counts[self.column]), float(np.median(counts[self.some]))
            if mine > 0 and theirs > 0:
                share = share_of_work(self.phases_ms, peers_ms, unit, mine / theirs)
                works.append(Work(unit, mine, theirs, share))
        return works

    @cached_property
    def more_work(self) -> Work | None:
        """What it has more of than its peers, if that is why it is late."""
        least = EXPLAINS.asked(self.had_more_work)
        more = (one for one in self.works if one.times >= 1 + MORE_WORK.enter)
        return next((one for one in more if one.share >= least), None)

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
        return Even(even[self.column], (rest[0], rest[-1]), slowest, float((counts * item_ms).max()))

    @property
    def other_work(self) -> Work | None:
        """The size of its batches: what differs most from its peers'; None: nothing was counted."""
        return max(self.works, key=lambda one: abs(one.times - 1), default=None)
