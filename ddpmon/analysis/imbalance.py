"""Who holds the others back: the detectors of lateness side by side, so that one cause is told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ddpmon.analysis.conditions import Conditions
from ddpmon.analysis.late_ranks import late_ranks
from ddpmon.analysis.links import slow_link
from ddpmon.analysis.moving import MOST, moving_straggler
from ddpmon.analysis.rhythms import periodic, rhythms
from ddpmon.analysis.world import World
from ddpmon.messages import Finding

SHARE = 1.5
"""Times what the costliest of single ranks costs: ranks that take turns cost more than that."""


def imbalance(
    world: World,
    before: Sequence[Finding] = (),
    conditions: Mapping[int, Conditions] | None = None,
    longer: World | None = None,
    parallelism: str = "",
) -> list[Finding]:
    """Late ranks, those late every so many steps, or another one each step; the costliest first.

    before: what was found last. conditions: what ranks' processes and devices did, by rank, where known. longer: the
    same world with more steps before it. parallelism: how the ranks train; "": with DDP.
    """
    if len(world.ranks) < 2:
        return []
    columns = {rank: column for column, rank in enumerate(world.ranks)}
    known = {columns[f.ranks[0]]: f for f in before if f.kind == "periodic_straggler" and f.ranks[0] in columns}
    longer = world if longer is None else longer
    regular = rhythms(longer, known)
    found = late_ranks(world, before, conditions, skip=[rhythm.column for rhythm in regular])
    found += [told for rhythm in regular if (told := periodic(longer, rhythm, known.get(rhythm.column)))]
    moving = moving_straggler(_after_what_is_over(world, found), before)
    # Ranks that take turns may each be late for some steps, or every so many.
    if moving and not any(_is_one_ranks_matter(f, moving[0]) for f in found):
        found = [f for f in found if f.until_step is not None]
    else:
        moving = []
    known_link = next((f for f in before if f.kind == "slow_link"), None)
    link = slow_link(world, known_link, conditions, parallelism)
    found += [link] if link else []
    found += moving
    return sorted(found, key=lambda f: (f.until_step is not None, -(f.cost_ms or 0.0)))


def _is_one_ranks_matter(single: Finding, moving: Finding) -> bool:
    """Whether one rank is late rather than another each step: for most steps, or for most of what it costs."""
    if single.until_step is not None:
        return False
    costs = SHARE * (single.cost_ms or 0.0) >= (moving.cost_ms or 0.0)
    return costs or single.evidence.get("critical_share", 0.0) > MOST


def _after_what_is_over(world: World, found: Sequence[Finding]) -> World:
    """The window after the last stretch of a late rank: half of each, and ranks would seem to take turns."""
    over = [f.until_step for f in found if f.until_step is not None]
    return world.between(int(np.searchsorted(world.step, max(over), side="right")), len(world)) if over else world
