"""Who holds the others back: the detectors of lateness side by side, so that one cause is told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpmon.analysis.excess import over_peers
from ddpmon.analysis.late_ranks import late_ranks
from ddpmon.analysis.moving import moving_straggler
from ddpmon.analysis.rhythms import periodic, rhythms
from ddpmon.analysis.world import World
from ddpmon.messages import Finding


def imbalance(
    world: World, before: Sequence[Finding] = (), starved: Mapping[int, float] | None = None
) -> list[Finding]:
    """Late ranks, those late every so many steps, or another one each step; the costliest first.

    before: what was found last. starved: share of the time that a rank waits for a core, where measured.
    """
    if len(world.ranks) < 2:
        return []
    excess = over_peers(world.own_ms)
    regular = rhythms(world, excess)
    moving = moving_straggler(world, before)
    if moving and len(regular) > 1:
        regular = []  # ranks that take turns are each late every so many steps
    elif regular:
        moving = []
    known = {f.ranks[0]: f for f in before if f.kind == "periodic_straggler"}
    found = late_ranks(world, excess, before, starved, skip=[rhythm.column for rhythm in regular])
    found += [periodic(world, rhythm, known.get(world.ranks[rhythm.column])) for rhythm in regular]
    lasting = any(f.severity == "warn" for f in found)
    found += [] if lasting and not regular else moving
    return sorted(found, key=lambda f: (f.until_step is not None, -(f.cost_ms or 0.0)))
