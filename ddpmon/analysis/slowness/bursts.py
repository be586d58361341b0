"""Decide whether a slow rank has a fault or a burst of noise, from the bursts of the other ranks.

As long as no rank has a fault, ranks are exchangeable: the longest of their slow stretches may be any rank's. So a
rank is slow for a reason of its own only if no other rank was nearly as slow for nearly as long, and if so many steps
went by without a burst that bursts of this length would have been seen by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import EVIDENCE, Slowdown
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.excess import over_peers, some_of
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

AS_MUCH = Threshold(
    0.5,
    of="time that another rank lost in one slow stretch, as a share of the slowdown's cost, above which "
    "ddpmon treats both as noise",
    why="A judgement call: if bursts are random, the longest is rarely twice as long as the second longest.",
)
COUNTED = 0.3
"""Share of a slowdown's excess above which steps of another rank count as slow."""
BURST_STEPS = 22
"""Steps that a burst lasts at most, as long as nothing is known: experts that get more tokens have them for 5 to 20,
and the first one is known to 2."""
MORE_OFTEN = EVIDENCE / 3
"""Log likelihood ratio at which the slow ranks have more bursts than others: for a change there is evidence already."""
SEEN_STEPS = 1300
"""Steps, of all ranks together, after which bursts are known: ranks that spend 2% of their steps in bursts of ten, as
much as is worth telling, have had 2.6 in so many, and none by chance in 7% of the runs."""


def may_be_burst(rows: RunRows, one: Slowdown, faults: Sequence[Slowdown]) -> bool:
    """Return whether a slowdown may be noise: other ranks were as slow for as long, or as often, or may soon be.

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
        if known.phase == one.phase:
            excess[_span(rows, known), len(mine) :][:, np.isin(ranks[others], known.ranks)] = 0.0
    span, size = _span(rows, one), one.phases_ms[one.phase]
    lasts = float(rows.steps[span].sum())
    # Of ranks that are slow together each must have lost more: the bursts of two may follow one another.
    lost_ms = (excess[span, : len(mine)] * rows.steps[span, None]).sum(axis=0)
    most_lost_ms = AS_MUCH.enter * min(one.share * size * lasts, float(lost_ms.min()))
    theirs, least = excess[:, len(mine) :], COUNTED * size
    if one.share == 1:
        seen = float(rows.steps[: span.start].sum()) * len(ranks)
        return (seen < SEEN_STEPS and lasts <= BURST_STEPS) or _largest_stretch_ms(rows, theirs, least) >= most_lost_ms
    beyond = np.maximum(theirs[span] - least, 0.0) * rows.steps[span, None]
    if beyond.sum(axis=0).max() >= most_lost_ms:
        return True
    is_long = excess[span] >= size / 2
    counts = (is_long[1:] & ~is_long[:-1]).sum(axis=0)
    more = _log_ratio(int(counts[: len(mine)].sum()), int(counts.sum()), len(mine) / len(counts))
    return more < MORE_OFTEN


def _largest_stretch_ms(rows: RunRows, excess: Floats, least: float) -> float:
    """Return the time that the worst stretch of any rank lost: its excess is above `least` on average throughout.

    excess: [N, ranks]
    """
    steps = rows.steps[:, None]
    total = np.concatenate((np.zeros((1, excess.shape[1])), np.cumsum((excess - least) * steps, axis=0)))
    beyond = total - np.minimum.accumulate(total)
    end, rank = np.unravel_index(int(beyond.argmax()), beyond.shape)
    begin = int(np.flatnonzero(beyond[: end + 1, rank] == 0)[-1])
    return float((excess * steps)[begin:end, rank].sum())


def _log_ratio(count: int, of: int, share: float) -> float:
    """Return the log likelihood ratio of so many events against a share of all: negative where they are fewer."""
    rest = of - count
    ratio = sum(part * log(part / (of * usual)) for part, usual in ((count, share), (rest, 1 - share)) if part)
    return ratio if count > share * of else -ratio


def _span(rows: RunRows, one: Slowdown) -> slice:
    return slice(rows.index(one.since), len(rows) if one.until is None else rows.index(one.until) + 1)
