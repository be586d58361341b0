"""Tell a fault of a rank from noise that comes in bursts: other ranks have had such bursts as well.

As long as no rank has a fault, ranks are exchangeable: the longest of their slow stretches may be any rank's. So a
rank is slow for a reason of its own only if no other rank was nearly as slow for nearly as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.slowness.past import Rows
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.statistics.arrays import running_total
from ddpmon.analysis.statistics.excess import over_peers, some_of
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

AS_MUCH = Threshold(
    0.3,
    of="share of a slowdown's excess above which steps of another rank count as slow, and of its lost time that a"
    " stretch of these loses, so that both are noise",
    why="A judgement: the worst of some bursts is rarely three times as bad as the next, and may be two at once.",
)


def is_like_others(rows: Rows, one: Slowdown, told: Sequence[Slowdown]) -> bool:
    """Return whether another rank was about as slow for about as long.

    Args:
        rows: The run.
        one: A slowdown of some ranks.
        told: Slowdowns that are findings: what their ranks took longer is no noise.

    """
    ranks = rows.world.ranks
    others = some_of(np.flatnonzero(~np.isin(ranks, one.ranks)))
    # One of the slow ranks besides, so that a single other one has a peer.
    columns = [*others.tolist(), ranks.index(one.ranks[0])]
    excess = over_peers(rows.phases_ms(columns)[..., OWN_PHASES.index(one.phase)])[:, :-1]
    for known in told:
        excess[_span(rows, known), np.isin(np.array(ranks)[others], known.ranks)] = 0.0
    steps, span, size = rows.steps, _span(rows, one), one.phases_ms[one.phase]
    lost_ms = one.share * size * float(steps[span].sum())
    beyond = (excess - AS_MUCH.enter * size) * steps[:, None]
    if one.share < 1:
        worst = np.maximum(beyond[span], 0.0).sum(axis=0).max()
    else:
        total = running_total(beyond)
        worst = (total - np.minimum.accumulate(total)).max()
    return bool(worst >= AS_MUCH.enter * lost_ms)


def _span(rows: Rows, one: Slowdown) -> slice:
    return slice(rows.index(one.since), len(rows) if one.until is None else rows.index(one.until) + 1)
