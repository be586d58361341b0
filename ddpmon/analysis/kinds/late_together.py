"""Several ranks that are late, none of which alone is worth mending: another leads then. Together they may be.

Each exceeds chance by itself, as any late rank does, but may be late by less than is asked of one alone. When it
began, and whether it is over, is asked of all of them at once: the mean of several strays less than each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from ddpmon.analysis.kinds.late_ranks import LateForAWhile, LateRank, index_of
from ddpmon.analysis.kinds.own_time import WORTH
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.statistics.arrays import median, medians
from ddpmon.analysis.statistics.excess import some_of
from ddpmon.analysis.steps.by_host import by_host
from ddpmon.analysis.steps.stragglers import EXCESS_MS, OVER_PEERS, late_by_little
from ddpmon.analysis.steps.stretches import STAYS, LateStretch
from ddpmon.analysis.steps.what_if import gain
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES, Finding

LITTLE = Threshold(
    0.025,
    of="share of a typical own time by which each of several ranks exceeds its peers'",
    why="Mending all of them gains no more than they are late, and less than 2% of a step is not reported.",
    keeps=STAYS,
)
FEWEST = Threshold(
    3,
    of="late ranks of which none alone is worth mending, to be one finding",
    why="A judgement: of two each is named with the other beside it, where both are late by enough for that.",
    stay=2,
)
PAIR = 2
"""Ranks that are one finding if they are late by too little to be named one by one."""
HALVES = Threshold(
    1.5,
    of="times what the ranks of either half of a world lie apart that the halves do, for the later half to be late",
    why="Two halves tell nothing of which one is usual, and what a rank strays from its peers is then what they lie"
    " apart. Normal means of eight ranks do it in one of 200 windows, of sixteen in one of 200,000 (drawn); whether it"
    " lasts, and exceeds chance, is asked besides.",
)
HALVES_STEPS = 48
"""Steps that tell how far the halves of a world lie apart."""
ALIKE = Threshold(
    0.75,
    of="share of several late ranks that are late most in the same phase, to be late in that phase",
    why="A judgement: what makes nearly all of them late is in one place; half of them have another reason.",
)
LARGE = Threshold(
    0.5,
    of="share of what mending all of several late ranks gains that mending one of them does, to be told of alone",
    why="A judgement: who gains half of it alone is the one to begin with. In noise each gains something alone.",
    stay=0.3,
)
LATELY = (96, 192, 384)
"""Last steps over which several ranks must be late by enough to be looked at closer: little shows in no few."""
BEHIND = 0.8
"""Share of that by which the last of them is behind the last of all others, on average: noise takes some of it."""


class LateTogether(LateForAWhile):
    """Several late ranks, with all that is known of them as one."""

    def __init__(
        self, world: World, columns: Sequence[int], stretch: LateStretch, held: Finding | None, alone: float = 1.0
    ) -> None:
        """stretch: of their mean. held: their finding of last time, if that goes on. alone: the most that one gains."""
        self.world, self.columns, self.stretch, self.held, self.alone = world, sorted(columns), stretch, held, alone
        self.part = world.between(stretch.first, stretch.last + 1)
        peers = np.delete(np.arange(len(world.ranks)), self.columns)
        self._some = some = some_of(peers)
        part = self.part
        over = part.phases_ms[:, self.columns] - medians(part.phases_ms[:, some])[:, None]
        phases = np.median(over, axis=0)
        most = phases.argmax(axis=1)
        common = int(np.bincount(most).argmax())
        in_common = most == common
        one_phase = ALIKE.reached(float(in_common.mean()))
        self.phase: str | None = OWN_PHASES[common] if one_phase else None
        self.phases = [OWN_PHASES[each] for each in most]
        """Of each."""
        self.phase_ms = float(np.median(phases.max(axis=1)[in_common] if one_phase else phases.max(axis=1)))
        self.each_ms = np.median(part.own_ms[:, self.columns] - medians(part.own_ms[:, some])[:, None], axis=0)
        self.over_ms = float(np.median(self.each_ms))
        self.peers = peers

    @property
    def ranks(self) -> list[int]:
        """Who they are."""
        return [self.world.ranks[column] for column in self.columns]

    @cached_property
    def still(self) -> dict[int, float]:
        """Those of them that have been late lately: what mending each alone gains."""
        lately = self.part.last(LATELY[-1])
        over = np.median(lately.own_ms[:, self.columns] - medians(lately.own_ms[:, self._some])[:, None], axis=0)
        least = max(EXCESS_MS.stay, LITTLE.stay * self.world.usual_ms)
        stay = [column for column, ms in zip(self.columns, over.tolist(), strict=True) if ms >= least]
        return {column: gain(self.part, column, seen=self.world) for column in stay}

    @cached_property
    def together(self) -> float:
        """How many times as fast if all of them were as fast as the others."""
        return max(1.0, gain(self.part, self.columns, seen=self.world))


def of_last_time(world: World, held: Finding) -> LateTogether | None:
    """Those of last time, who may keep up again; None: nothing of it is left to see. held: their finding."""
    columns = [world.ranks.index(rank) for rank in held.ranks if rank in world.ranks]
    if not columns or len(columns) == len(world.ranks):
        return None
    stretch = _of_their_mean(world, columns, held)
    return LateTogether(world, columns, stretch, held) if stretch else None


def late_together(
    world: World,
    before: LateTogether | None,
    late_alone: Sequence[LateRank],
    conditions: Mapping[int, Conditions],
    skip: Collection[int],
) -> LateTogether | None:
    """Several ranks that are late now, if there are enough.

    before: those of last time, who still are. late_alone: ranks that are late by enough to be told of alone. skip:
    columns whose lateness is another kind's.
    """
    stay = before.still if before else {}
    together = before.together if before else 1.0
    gains = {
        column: gained for column, gained in stay.items() if column not in skip and not _is_large(gained, together)
    }
    new = [one for one in late_alone if one.column not in stay and not one.stretch.over and _is_small(one)]
    late_anyway = {*skip, *stay, *(one.column for one in late_alone)}
    if little_late := _may_be_late(world, late_anyway, [*gains, *(one.column for one in new)]):
        others = [column for column in range(len(world.ranks)) if column not in little_late]
        stretches = [one for one in late_by_little(world, {}, others, LITTLE) if not one.over]
        little = [LateRank(world, one, [], None, conditions, had_more_work=False) for one in stretches]
        new += [one for one in little if _is_small(one)]
    gains |= {one.column: one.alone for one in new}
    fewest = PAIR if any(one.column in little_late for one in new) else FEWEST.asked(before is not None)
    if not gains:
        later = [] if skip else _later_half(world, conditions)
        gains = {column: gain(world, column, seen=world) for column in later}
    if not fewest <= len(gains) <= (len(world.ranks) + 1) // 2:  # what most do is the rule
        return None
    if before is None and new and all(one.held for one in new):  # each has its finding, and nobody joins them
        return None
    columns, held = sorted(gains), before.held if before else None
    stretch = before.stretch if before and columns == before.columns else _of_their_mean(world, columns, held)
    return LateTogether(world, columns, stretch, held, max(gains.values())) if stretch and not stretch.over else None


def _is_small(one: LateRank) -> bool:
    """Whether mending it alone gains little, and it has no more work than others."""
    return one.more_work is None and not _is_large(one.alone, one.together, alone_before=one.held is not None)


def _is_large(alone: float, together: float, *, alone_before: bool = False) -> bool:
    """Whether mending one is worth it by itself, beside what all gain. alone_before: it was told of alone."""
    worth = WORTH.reached(alone, held=alone_before)
    return worth and (together <= 1.0 or LARGE.reached((alone - 1) / (together - 1), held=alone_before))


def _may_be_late(world: World, skip: Collection[int], small: Sequence[int]) -> list[int]:
    """Columns that are late by enough over many steps, chance or not, if all others arrive before them.

    small: columns that are late together anyway; with them they must be enough.
    """
    total, smooth = world.total_ms, world.smooth_ms
    steps, least = len(smooth), max(EXCESS_MS.enter, LITTLE.enter * world.usual_ms)
    for n in (*LATELY, steps):
        if not LATELY[0] <= n <= steps:
            continue
        means = (total[-1] - total[steps - n]) / n
        means[list(skip)] = 0.0
        little = means >= least
        if little.any() and little.sum() + len(small) >= PAIR:
            late = little.copy()
            late[list(small)] = True
            behind = smooth[-n:, late].max(axis=1) - smooth[-n:, ~late].max(axis=1, initial=-np.inf)
            if behind.mean() >= least * BEHIND:
                return np.flatnonzero(little).tolist()
    return []


def _later_half(world: World, conditions: Mapping[int, Conditions]) -> list[int]:
    """The half of the columns that is later, if the halves lie far apart for the whole window.

    None where they are hosts: whether a host is late is asked with what its ranks stray together.
    """
    ranks, steps = len(world.ranks), len(world.smooth_ms)
    half = ranks // 2
    if ranks % 2 or half < FEWEST.enter or steps < HALVES_STEPS:
        return []
    levels = world.total_ms[-1] / steps
    order = np.argsort(levels)
    in_order = levels[order] / 2  # what is usual for a rank of one half is a rank of the other
    apart = in_order[half] - in_order[half - 1]
    within = max(in_order[half - 1] - in_order[0], in_order[-1] - in_order[half])
    if apart < max(EXCESS_MS.enter, HALVES.enter * within):
        return []
    # How far the nearest of both lie apart says who is late, not by how much: noise takes most of that.
    over = world.own_ms[:, order[half:]].mean(axis=1) - medians(world.own_ms[:, order[:half]])
    if median(over) < max(EXCESS_MS.enter, OVER_PEERS.enter * world.usual_ms):
        return []
    hosts = [conditions[rank].host if rank in conditions else "" for rank in world.ranks]
    later = sorted(order[half:].tolist())
    return [] if {hosts[column] for column in later}.isdisjoint(hosts[column] for column in order[:half]) else later


def _of_their_mean(world: World, columns: Sequence[int], held: Finding | None) -> LateStretch | None:
    """The stretch over which the mean of these is late over other ranks. held: their finding, if it goes on."""
    peers = some_of(np.delete(np.arange(len(world.ranks)), list(columns))).tolist()
    means = by_host(world, [list(columns), *([peer] for peer in peers)])
    since = {0: index_of(world, held.since_step)} if held else {}
    return next(iter(late_by_little(means, since, range(1, len(means.ranks)), LITTLE)), None)
