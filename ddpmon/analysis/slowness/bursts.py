"""Decide whether a slow rank has a fault or a burst of noise, by comparison with the bursts of the other ranks.

Without a fault, every rank is equally likely to have the longest burst. A slow rank therefore has a fault only if no
other rank lost nearly as much time in one burst, and if the run is long enough to have shown bursts of this length.
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
MIN_BURST_SHARE = 0.3
"""Minimum excess for a step of another rank to count as part of a burst, as a share of the slowdown's excess."""
BURST_STEPS = 22
"""Maximum length of a burst in steps, assumed while the run is too short to have shown its bursts. An expert of a
mixture of experts may get more tokens for 5 to 20 steps; the first slow step is uncertain by 2 steps."""
MORE_OFTEN = EVIDENCE / 3
"""Log likelihood ratio from which on slow ranks have more bursts than other ranks. A low value suffices, because the
detector already has evidence that these ranks are slow."""
SEEN_STEPS = 1300
"""Number of steps, summed over ranks, after which a run has shown its bursts. If ranks spend 2% of their steps in
bursts of ten steps, 1,300 steps contain 2.6 bursts on average, and none in 7% of runs."""


def may_be_burst(rows: RunRows, one: Slowdown, faults: Sequence[Slowdown]) -> bool:
    """Return whether a slowdown may be noise, because other ranks have similar bursts or the run is too short to tell.

    Args:
        rows: The run.
        one: A slowdown of some ranks.
        faults: Slowdowns that are known not to be noise.

    """
    ranks = np.array(rows.world.ranks)
    mine, others = (some_of(np.flatnonzero(np.isin(ranks, one.ranks) == slow)) for slow in (True, False))
    # The slow ranks are in the array too, so that a single other rank has a peer.
    excess = over_peers(rows.phases_ms([*mine, *others])[..., OWN_PHASES.index(one.phase)])
    for known in faults:
        if known.phase == one.phase:
            excess[_span(rows, known), len(mine) :][:, np.isin(ranks[others], known.ranks)] = 0.0
    span, size = _span(rows, one), one.phases_ms[one.phase]
    lasts = float(rows.steps[span].sum())
    # The slow rank that lost least counts: bursts of two ranks, one after the other, may look like one slowdown of
    # both.
    lost_ms = (excess[span, : len(mine)] * rows.steps[span, None]).sum(axis=0)
    most_lost_ms = AS_MUCH.enter * min(one.share * size * lasts, float(lost_ms.min()))
    theirs, least = excess[:, len(mine) :], MIN_BURST_SHARE * size
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
    """Return the largest total excess [ms] of one rank in one stretch of rows whose mean excess is above `least`.

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
