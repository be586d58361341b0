"""Hosts whose ranks are late together: in which phase, since when, what it costs, what sets their machine apart.

Each rank for itself may not stand out: of two hosts, half of all ranks are late. So hosts are compared as ranks are,
by the mean of their ranks, whose noise has in it what all ranks of a host share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ddpmon.analysis.kinds.late_ranks import CARRIES, MORE_WORK, LateForAWhile, index_of, share_of_work
from ddpmon.analysis.processes.conditions import Cause, Conditions, Lateness, cause
from ddpmon.analysis.statistics.arrays import Floats, medians
from ddpmon.analysis.statistics.excess import EXPLAINS, some_of
from ddpmon.analysis.steps.by_host import by_host, columns_by_host
from ddpmon.analysis.steps.stragglers import late
from ddpmon.analysis.steps.stretches import FEWEST_STEPS, LateStretch
from ddpmon.analysis.steps.what_if import gain
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES, Finding

FEWEST_RANKS = Threshold(
    2,
    of="ranks of a host",
    why="With one rank it is undecided whether it or its machine is slow: the rank is named, and its host with it.",
)
MOST = Threshold(
    0.75,
    of="share of a host's ranks that are late with it",
    why="A judgement: what slows a machine slows nearly all that runs there; half of its ranks have a reason of their"
    " own.",
    stay=0.5,
)
SHARES = Threshold(
    0.5,
    of="share of what the median rank of a late host is late that a rank must be, in its phase, to be late with it",
    why="A judgement: who is late by less than half, by more than twice as much, or elsewhere in the step, has a reason"
    " of its own.",
)


class LateHost(LateForAWhile):
    """One host whose ranks are late together, with all that is known of it."""

    def __init__(
        self,
        name: str,
        world: World,
        columns: Sequence[int],
        stretch: LateStretch,
        conditions: Mapping[int, Conditions],
    ) -> None:
        """columns: of all its ranks. stretch: of the host among hosts."""
        self.name, self.world, self.stretch, self.conditions = name, world, stretch, conditions
        self.held = None
        self.size = len(columns)
        self.part = world.between(stretch.first, stretch.last + 1)
        there = np.zeros(len(world.ranks), bool)
        there[list(columns)] = True
        self._elsewhere = np.flatnonzero(~there)
        self.partners: list[int] = []
        """Columns of ranks elsewhere that are late too."""
        over = self._over_ms(self.part.own_ms, columns)
        middle = float(np.median(over))
        shares = (over >= SHARES.enter * middle) & (over * SHARES.enter <= middle) if middle > 0 else over < -np.inf
        phases = np.array([self._over_ms(self.part.phases_ms[..., i], columns) for i in range(len(OWN_PHASES))])
        most = int(np.median(phases[:, shares], axis=1).argmax()) if shares.any() else 0
        shares &= phases[most] >= SHARES.enter * phases.max(axis=0)
        self.columns = [column for column, is_late in zip(columns, shares.tolist(), strict=True) if is_late]
        """Of its ranks that are late with it, in the same phase."""
        self.over_ms = float(np.median(over[shares])) if self.columns else 0.0
        self.phases_ms: Floats = np.median(phases[:, shares], axis=1) if self.columns else np.zeros(len(OWN_PHASES))
        self.phase = OWN_PHASES[most]

    def _over_ms(self, values: Floats, columns: Sequence[int]) -> Floats:
        """Of each column, in the median step, over the median of ranks elsewhere."""
        usual = medians(values[:, self._elsewhere[some_of(np.arange(len(self._elsewhere)))]])
        over: Floats = np.median(values[:, list(columns)] - usual[:, None], axis=0)
        return over

    @property
    def ranks(self) -> list[int]:
        """That are late."""
        return [self.world.ranks[column] for column in self.columns]

    @property
    def with_ranks(self) -> list[int]:
        """Who is late too."""
        return sorted(self.world.ranks[column] for column in self.partners)

    @property
    def peers(self) -> list[int]:
        """Columns of ranks elsewhere that are not late."""
        rest = [column for column in self._elsewhere.tolist() if column not in self.partners]
        return rest or self._elsewhere.tolist()

    def is_one(self, *, held: bool) -> bool:
        """Whether it is the host: most of its ranks are late alike, and not because they have more to do."""
        most = MOST.reached(len(self.columns) / self.size, held=held)
        all_alike = self.over_ms >= MOST.asked(held) * self.stretch.over_ms  # one that is far behind makes a mean, too
        carries = float(self.phases_ms.max()) >= CARRIES.enter * self.over_ms > 0
        return most and all_alike and carries and not self._has_more_work

    @cached_property
    def _has_more_work(self) -> bool:
        """Whether its ranks have more to do than those elsewhere, and own times follow that."""
        peers_ms = np.median(np.median(self.part.phases_ms[:, self.peers], axis=1), axis=0)
        for unit, counts in (("tokens", self.part.tokens), ("samples", self.part.samples)):
            mine, theirs = (float(np.median(counts[:, them].mean(axis=0))) for them in (self.columns, self.peers))
            if theirs > 0 and mine >= theirs * (1 + MORE_WORK.enter):
                share = share_of_work(self.phases_ms, peers_ms, unit, mine / theirs)
                if EXPLAINS.reached(share):
                    return True
        return False

    @cached_property
    def alone(self) -> float:
        """How many times as fast if its ranks were as fast as the others."""
        return max(1.0, gain(self.part, self.columns, seen=self.world))

    @cached_property
    def together(self) -> float:
        """The same if all that are late were."""
        columns = [*self.columns, *self.partners]
        return max(self.alone, gain(self.part, columns, seen=self.world)) if self.partners else self.alone

    @cached_property
    def cause(self) -> Cause | None:
        """What sets its machine apart."""
        if self.stretch.over:
            return None
        own, step = (float(values[:, self.columns].mean()) for values in (self.part.own_ms, self.part.length_ms))
        lateness = Lateness(
            self.ranks[0], self.phase, self.over_ms, own, step, self.name, self.began_us_ago, self.found_before
        )
        return cause(lateness, self.ranks, self.conditions, [self.world.ranks[column] for column in self.peers])

    @property
    def as_ranks(self) -> list[LateStretch]:
        """Its late ranks, each late for the same stretch."""
        return [replace(self.stretch, column=column, over_ms=self.over_ms) for column in self.columns]


def late_hosts(
    world: World,
    held: Sequence[Finding],
    over: Sequence[Finding],
    conditions: Mapping[int, Conditions],
    skip: Collection[int] = (),
) -> list[LateHost]:
    """Hosts that are late now, worst first, then those that were for a while; none in a run of one host.

    held, over: findings of last time about hosts, those that last and those that are over. conditions: by rank.
    skip: columns of ranks whose lateness is another kind's: their hosts are left out.
    """
    names = [conditions[rank].host if rank in conditions else "" for rank in world.ranks]
    columns = columns_by_host(names)
    several = [host for host, there in columns.items() if FEWEST_RANKS.reached(len(there))]
    if len(columns) < 2 or not several or "" in columns:
        return []
    hosts = list(columns)
    lasting = {finding.subject: finding for finding in held}
    since = {
        hosts.index(name): index_of(world, finding.since_step) for name, finding in lasting.items() if name in columns
    }
    ended: dict[int, int] = {}
    for finding in over:
        if finding.subject in columns:
            place = hosts.index(finding.subject)
            ended[place] = max(ended.get(place, 0), int(np.searchsorted(world.step, finding.until_step or 0)))
    made = []
    left_out = [hosts.index(names[column]) for column in skip]
    side_by_side = by_host(world, list(columns.values()))
    if FEWEST_STEPS.reached(len(world)):
        sizes = np.array([len(there) for there in columns.values()])
        share = np.sqrt(1 / sizes + 1 / (sizes.sum() - sizes))
        side_by_side.strays_as_means_of(world, share)
    for stretch in late(side_by_side, since, left_out, ended):
        name = hosts[stretch.column]
        one = LateHost(name, world, columns[name], stretch, conditions)
        one.held = lasting.get(name)
        if name in several and one.is_one(held=one.held is not None):
            made.append(one)
    return made
