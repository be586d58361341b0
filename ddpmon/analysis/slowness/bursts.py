"""Decide whether a slowdown may be noise: bursts that other ranks have too, or noise that is too large for a decision.

Without a fault, every rank is equally likely to have the longest burst. A slow rank therefore has a fault only if no
other rank lost nearly as much time in one burst, and if the run is long enough to have shown bursts of this length.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np

from ddpmon.analysis.slowness.level_since_start import UNSEEN_WANDER_ERRORS
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import CERTAIN_Z, EVIDENCE, Slowdown
from ddpmon.analysis.slowness.spread import mean_correlation
from ddpmon.analysis.slowness.who import FEWEST_ROWS
from ddpmon.analysis.statistics.arrays import SIGMAS_PER_MAD, Floats, series_median
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
"""Minimum excess with which a step of another rank counts as part of a burst, as a share of the slowdown's excess."""
BURST_STEPS = 22
"""Maximum length of a burst in steps, assumed while the run is too short to have shown its bursts. In a
mixture of experts, one expert may get more tokens for 5 to 20 steps. Two steps are added, because the first slow step
is uncertain by two."""
MORE_OFTEN = EVIDENCE / 3
"""Log likelihood ratio from which on slow ranks have more bursts than other ranks. A third of EVIDENCE suffices,
because the detector already has evidence that these ranks are slow."""
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
    # The slow rank that lost least time counts, because two bursts on two ranks, one after the other, may look like
    # one slowdown of both ranks.
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
    """Return the signed log likelihood ratio of a count against the expected share. It is negative if the count is
    lower.

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


NOISIER = Threshold(
    2.0,
    of="present spread of the noise, as a multiple of its earlier spread, above which the noise may hide a slowdown",
    why="As long as the noise does not grow, ddpmon can still see a slowdown that continues.",
)


def hidden_since(
    rows: RunRows, series: tuple[Floats, Floats, float], begin: int, before: Slowdown | None
) -> int | None:
    """Return the first row at which noise is too large to tell whether the slowdown continues; None if there is none.

    Args:
        rows: The run.
        series: `Excess.series` of the slow ranks.
        begin: First row of the slowdown, which still lasts as far as is known.
        before: Description of the slowdown at the last judgement.

    """
    values, noise, memory = series
    if len(rows) - begin < 4 * FEWEST_ROWS:
        return None
    change = rows.index(before.hidden_since) if before and before.hidden_since is not None else 0
    if before and change > begin:
        level = before.excess_ms
    else:
        variance = np.square(noise[begin:])
        change = _variance_change(variance) + begin
        level = series_median(values[begin:change])
        ratio = variance[change - begin :].mean() / variance[: change - begin].mean()
        if not NOISIER.is_reached(float(ratio) ** 0.5):
            return None
    # Use a median, because large noise is skewed. The standard error of a median is 1.25 times that of a mean.
    lately, loud = series_median(values[change:]), float(np.sqrt(np.square(noise[change:]).mean()))
    reach = 2 * 1.25 * loud * (memory / float(rows.steps[change:].sum())) ** 0.5
    return change if lately - reach <= 0 and lately + reach >= level else None


def begins_as_noise(rows: RunRows, values: Floats, begin: int, end: int) -> bool:
    """Return whether ranks that seem slow from a row on may only be noisier than before.

    Noise makes the excess vary, but a slowdown adds the same time to each step. The size of the noise is the scatter of
    the values around their trend. Its duration follows from the correlation of neighbouring values. Noise counts as
    grown if it was smaller in a quarter of the earlier rows, because it may have grown before the ranks seem slow.

    Args:
        rows: The run.
        values: [N] The excess.
        begin: First row of the slowdown.
        end: Row after the slowdown's last row.

    """
    values, begin = values[len(rows.blocks) : end], begin - len(rows.blocks)
    count, size = len(values) - begin, min(len(values) - begin, begin)
    if size < FEWEST_ROWS:
        return False
    usual, now = (
        [_around_trend(values[last - size : last])[0] for last in range(end, first + size - 1, -size)]
        for first, end in ((0, begin), (begin, len(values)))
    )
    if not NOISIER.is_reached(
        series_median(np.array(now)) / max(float(np.quantile(usual, 0.25, method="lower")), 1e-9)
    ):
        return False
    around = _around_trend(values[begin:])[1]
    level = float(around.mean())
    rest = around - level
    square = float(rest @ rest)
    alike = float(rest[1:] @ rest[:-1]) / max(square, 1e-12)
    # Correct the bias of a correlation of few values around a fitted line, and take an upper bound.
    alike += (2 + 4 * max(alike, 0.0)) / count + UNSEEN_WANDER_ERRORS * (1 / count) ** 0.5
    memory = -1 / log(min(max(alike, 1e-9), exp(-1 / count)))
    of_mean, of_line = (
        mean_correlation(np.correlate(weights, weights, "full")[count - 1 :], memory)
        for weights in (np.ones(count), _places(count))
    )
    # Correct for few values: they vary less around their own trend than around 0.
    return bool(level < CERTAIN_Z * (square / count * of_mean / (1 - of_mean - of_line)) ** 0.5)


def _around_trend(values: Floats) -> tuple[float, Floats]:
    """Return the robust standard deviation of values around a line, and the values without the slope and outliers."""
    place = _places(len(values))
    level = values - place * float(place @ values) / float(place @ place)
    middle = series_median(level)
    spread = SIGMAS_PER_MAD * series_median(np.abs(level - middle))
    return spread, np.clip(level, middle - 4 * spread, middle + 4 * spread)


def _places(count: int) -> Floats:
    """Return equally spaced numbers around 0, [count]."""
    places: Floats = np.arange(count, dtype=np.float64) - (count - 1) / 2
    return places


def _variance_change(variance: Floats) -> int:
    """Return the most likely index at which a variance changes once."""
    count = np.arange(1, len(variance))
    sums = np.cumsum(variance)
    first, rest = sums[:-1] / count, (sums[-1] - sums[:-1]) / (len(variance) - count)
    return int((count * np.log(first) + (len(variance) - count) * np.log(np.maximum(rest, 1e-30))).argmin()) + 1
