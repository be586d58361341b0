"""Decide whether a slow rank has a fault or a burst of noise, by comparison with the bursts of the other ranks.

As long as no rank has a fault, ranks are exchangeable: any rank may have the longest of their slow stretches. So a rank
is slow for a reason of its own only if no other rank was nearly as slow for nearly as long, and if so many steps passed
without a burst that bursts of this length would have been seen by now.
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
    "ddpmon treats the stretch and the slowdown as noise",
    why="A judgement call: if bursts are random, the longest is rarely twice as long as the second longest.",
)
COUNTED = 0.3
"""Minimum excess of a slow step of another rank, as a share of the slowdown's excess."""
BURST_STEPS = 22
"""Maximum length of a burst in steps while bursts of this run are unknown. Experts that get more tokens keep them for 5
to 20 steps, and the first slow step is known to 2."""
MORE_OFTEN = EVIDENCE / 3
"""Log likelihood ratio at which the slow ranks have more bursts than others. It is low: the change has evidence
already."""
SEEN_STEPS = 1300
"""Number of steps, of all ranks together, after which bursts are known. Ranks that spend 2% of their steps in bursts of
ten, as much as is worth reporting, have had 2.6 bursts in so many steps on average, and none in 7% of the runs."""


def may_be_burst(rows: RunRows, one: Slowdown, faults: Sequence[Slowdown]) -> bool:
    """Return whether a slowdown may be noise: other ranks were as slow for as long, or as often, or may be so soon.

    Args:
        rows: The run.
        one: A slowdown of some ranks.
        faults: Slowdowns that are known not to be noise.

    """
    ranks = np.array(rows.world.ranks)
    mine, others = (some_of(np.flatnonzero(np.isin(ranks, one.ranks) == slow)) for slow in (True, False))
    # The peers include at least one of the slow ranks, so that a single other rank also has a peer.
    excess = over_peers(rows.phases_ms([*mine, *others])[..., OWN_PHASES.index(one.phase)])
    for known in faults:
        if known.phase == one.phase:
            excess[_span(rows, known), len(mine) :][:, np.isin(ranks[others], known.ranks)] = 0.0
    span, size = _span(rows, one), one.phases_ms[one.phase]
    lasts = float(rows.steps[span].sum())
    # If several ranks are slow together, each must have lost more than others: bursts of two ranks may follow one
    # another.
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
    """Return the time that the worst stretch of any rank cost; its mean excess is above `least` throughout.

    Args:
        rows: The run.
        excess: [N, ranks] Excess of each rank in each row.
        least: Minimum mean excess, in ms.

    """
    steps = rows.steps[:, None]
    total = np.concatenate((np.zeros((1, excess.shape[1])), np.cumsum((excess - least) * steps, axis=0)))
    beyond = total - np.minimum.accumulate(total)
    end, rank = np.unravel_index(int(beyond.argmax()), beyond.shape)
    begin = int(np.flatnonzero(beyond[: end + 1, rank] == 0)[-1])
    return float((excess * steps)[begin:end, rank].sum())


def _log_ratio(count: int, of: int, share: float) -> float:
    """Return the signed log likelihood ratio of a count against the expected share; it is negative if the count is
    below it.

    Args:
        count: Number of events of interest.
        of: Number of all events.
        share: Expected share of the events of interest.

    """
    rest = of - count
    ratio = sum(part * log(part / (of * usual)) for part, usual in ((count, share), (rest, 1 - share)) if part)
    return ratio if count > share * of else -ratio


def _span(rows: RunRows, one: Slowdown) -> slice:
    return slice(rows.index(one.since), len(rows) if one.until is None else rows.index(one.until) + 1)
