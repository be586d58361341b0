"""Tell a fault of a rank from noise that comes in bursts: other ranks have had such bursts as well.

As long as no rank has a fault, ranks are exchangeable: the longest of their slow stretches may be any rank's. So a
rank is slow for a reason of its own only if no other rank was nearly as slow for nearly as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.patterns import MORE_OFTEN
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.statistics.excess import over_peers, some_of
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

AS_MUCH = Threshold(
    0.3,
    of="share of a slowdown's excess above which steps of another rank count as slow, and of its lost time that a"
    " stretch of these loses, so that both are noise",
    why="A judgement: the worst of some bursts is rarely three times as bad as the next, and may be two at once.",
)


def is_like_others(rows: RunRows, one: Slowdown, faults: Sequence[Slowdown]) -> bool:
    """Return whether another rank was about as slow for about as long, or has single slow steps about as often.

    Args:
        rows: The run.
        one: A slowdown of some ranks.
        faults: Slowdowns that are no noise.

    """
    ranks = np.array(rows.world.ranks)
    mine, others = (some_of(np.flatnonzero(np.isin(ranks, one.ranks) == slow)) for slow in (True, False))
    # One of the slow ranks at least besides, so that a single other one has a peer.
    excess = over_peers(rows.phases_ms([*mine, *others])[..., OWN_PHASES.index(one.phase)])
    for known in faults:
        excess[_span(rows, known), len(mine) :][:, np.isin(ranks[others], known.ranks)] = 0.0
    span, size = _span(rows, one), one.phases_ms[one.phase]
    lost_ms = one.share * size * float(rows.steps[span].sum())
    beyond = (excess[:, len(mine) :] - AS_MUCH.enter * size) * rows.steps[:, None]
    if one.share == 1:
        total = np.cumsum(np.concatenate((np.zeros_like(beyond[:1]), beyond)), axis=0)
        return bool((total - np.minimum.accumulate(total)).max() >= AS_MUCH.enter * lost_ms)
    if np.maximum(beyond[span], 0.0).sum(axis=0).max() >= AS_MUCH.enter * lost_ms:
        return True
    is_long = excess[span] >= size / 2
    counts = (is_long[1:] & ~is_long[:-1]).sum(axis=0)
    more = _log_ratio(int(counts[: len(mine)].sum()), int(counts.sum()), len(mine) / len(counts))
    return not MORE_OFTEN.reached(more)


def _log_ratio(count: int, of: int, share: float) -> float:
    """Return the log likelihood ratio of so many events against a share of all: negative where they are fewer."""
    rest = of - count
    ratio = sum(part * log(part / (of * usual)) for part, usual in ((count, share), (rest, 1 - share)) if part)
    return ratio if count > share * of else -ratio


def _span(rows: RunRows, one: Slowdown) -> slice:
    return slice(rows.index(one.since), len(rows) if one.until is None else rows.index(one.until) + 1)
