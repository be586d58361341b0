"""Who holds the others back: the detectors of lateness side by side, so that one cause is told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpmon.analysis.conditions import Conditions
from ddpmon.analysis.late_ranks import late_ranks
from ddpmon.analysis.links import slow_link
from ddpmon.analysis.moving import moving_straggler
from ddpmon.analysis.rhythms import periodic, rhythms
from ddpmon.analysis.world import World
from ddpmon.messages import Finding


def imbalance(
    world: World, before: Sequence[Finding] = (), conditions: Mapping[int, Conditions] | None = None
) -> list[Finding]:
    """Late ranks, those late every so many steps, or another one each step; the costliest first.

    before: what was found last. conditions: what ranks' processes and devices did, by rank, where known.
    """
    if len(world.ranks) < 2:
        return []
    regular = rhythms(world)
    moving = moving_straggler(world, before)
    if moving and len(regular) > 1:
        regular = []  # ranks that take turns are each late every so many steps
    elif regular:
        moving = []
    known = {f.ranks[0]: f for f in before if f.kind == "periodic_straggler"}
    found = late_ranks(world, before, conditions, skip=[rhythm.column for rhythm in regular])
    found += [periodic(world, rhythm, known.get(world.ranks[rhythm.column])) for rhythm in regular]
    known_link = next((f for f in before if f.kind == "slow_link"), None)
    link = slow_link(world, known_link, conditions)
    found += [link] if link else []
    lasting = any(f.severity == "warn" for f in found)
    found += [] if lasting and not regular else moving
    return sorted(found, key=lambda f: (f.until_step is not None, -(f.cost_ms or 0.0)))
