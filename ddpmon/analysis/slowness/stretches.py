"""Stretches of the run over which a series is high, and the rhythm of their recurrence: in steps, in seconds, or none.

In a rhythm, the beginnings of stretches are equally far apart. A randomisation test decides: the beginnings must be
more regular than each of PERMUTATIONS sets of as many random beginnings over the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Literal

import numpy as np

from ddpmon.analysis.slowness.excess import NOISE_ROWS
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import CERTAIN_Z, EVIDENCE, WORTH
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints, series_median
from ddpmon.analysis.threshold import Threshold

AT_PEERS = Threshold(
    0.25,
    of="excess of a rank in its usual steps, as a share of its mean excess, below which the rank is slow only "
    "in some steps",
    why="In its usual steps, such a rank must be as fast as its peers. A rank that is slow in all steps, and "
    "slower in a few, is a different case.",
    below=True,
)
ONE_STEP = EVIDENCE / 3
"""Maximum log likelihood ratio of a single step: one long step is at most a third of the evidence for a change."""
DECISIVE_LIKELIHOOD = 1e6
"""Log likelihood ratio so large that no other evidence outweighs it."""
LEVEL_STEPS = (8, 24, 72)
"""Numbers of first rows over which the size of a slowdown is first estimated; the largest estimate is used."""


@dataclass(frozen=True)
class Stretches:
    """Parts of the run over which a series is high."""

    slow: Bools
    """[N] True for rows that are slow."""
    counts: Floats
    """[N] Number of slow steps in each row."""
    single: bool
    """True if each step was labelled separately, because slow and usual steps differ clearly."""
    known: tuple[tuple[int, int], ...] = ()
    """First and last step of stretches from earlier descriptions."""

    def with_known(self, rows: RunRows, known: Sequence[tuple[int, int]]) -> Stretches:
        """Add stretches from earlier descriptions: these are more exact than the blocks of the past."""
        if self.single:
            return self
        slow, counts = self.slow.copy(), self.counts.copy()
        for first, last in known:
            part = slice(rows.index(first), rows.index(last) + 1)
            slow[part] = True
            around = slice(max(0, part.start - 1), part.stop + 1)
            begin, end = rows.first[around], rows.first[around] + rows.steps[around]
            counts[around] = np.maximum(np.minimum(end, last + 1) - np.maximum(begin, first), 0)
        return replace(self, slow=slow, counts=counts, known=tuple(known))

    def steps(self, rows: RunRows) -> list[tuple[int, int]]:
        """Return the first and the last step of each stretch, as exactly as they are known."""
        known = {rows.index(first): (first, last) for first, last in self.known}
        return [
            next(
                (known[row] for row in range(begin, end) if row in known),
                (int(rows.first[begin]), rows.last_step(end - 1)),
            )
            for begin, end in self.spans
        ]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the first row of each stretch and the row after its last."""
        edges = np.flatnonzero(np.diff(self.slow.astype(np.int8), prepend=0, append=0))
        return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def stretches(
    rows: RunRows, series: tuple[Floats, Floats, float], start: int, level_ms: float | None = None
) -> Stretches:
    """Label each row as slow or usual: the most likely labels, where each change of label needs EVIDENCE.

    Args:
        rows: The run.
        series: The result of `Excess.series`.
        start: Row near which the series became slow.
        level_ms: Excess of a slow step in ms in the last description, if all steps were slow.

    """
    values, noise, memory = series
    by_step = steps_apart(rows, values, noise, start)
    if by_step is not None:
        return by_step
    variance = np.square(noise) * memory / rows.steps
    slow, _ = _slow_rows(values, variance, rows.steps, start, level_ms, 0.0)
    if level_ms and not slow.any():
        # An earlier description proves that the slowdown began, even if noise now hides the beginning. Only the end is
        # unknown.
        slow, _ = _slow_rows(values, variance, rows.steps, start, level_ms, DECISIVE_LIKELIHOOD)
    ends = np.flatnonzero(np.diff(slow.astype(np.int8)) == -1) + 1
    if len(ends) and not slow[-1]:
        # The excess may be smaller than before but not 0: label the rest again with its own level.
        before, rest = values[: np.argmax(slow)], slice(int(ends[-1]), None)
        over = values[rest] - (series_median(before) if len(before) >= NOISE_ROWS else 0.0)
        less, size = _slow_rows(over, variance[rest], rows.steps[rest], 0, None, -EVIDENCE)
        if size >= (WORTH.enter - 1) * series_median(rows.length_ms[rest]):
            slow[rest] = less
    return Stretches(slow, np.where(slow, rows.steps, 0.0), single=False)


def _slow_rows(
    values: Floats, variance: Floats, steps: Ints, start: int, level_ms: float | None, known: float
) -> tuple[Bools, float]:
    """Label rows as slow or usual, and return the labels and the excess of the slow rows.

    Args:
        values: [N] The excess.
        variance: [N] Its variance in each row.
        steps: [N] Number of steps in each row.
        start: Row near which the series became slow.
        level_ms: Excess of a slow step in ms in the last description; None if unknown.
        known: Log likelihood ratio to add at the row `start`, as prior evidence that this row is slow.

    """
    firsts = [series_median(values[start : start + count]) for count in LEVEL_STEPS]
    level, usual = max(*firsts, level_ms or 0.0), 0.0
    least = level / 2
    slow = np.zeros(len(values), np.bool_)
    if level <= 0:
        return slow, level
    most = ONE_STEP * np.minimum(steps, EVIDENCE / ONE_STEP)
    for _ in range(3):
        ratios = np.clip((values - usual - level / 2) * level / variance, -most, most)
        ratios[start] += known
        last, slow = slow, _most_likely(ratios)
        if not slow.any() or (slow == last).all():
            break
        usual = float(np.clip(series_median(values[~slow]), -level / 2, level / 2)) if (~slow).sum() >= 8 else 0.0
        level = max(series_median(values[slow]) - usual, least)
    return slow, level


def steps_apart(
    rows: RunRows, values: Floats, noise: Floats, start: int, *, beside_pauses: bool = False
) -> Stretches | None:
    """Label each step separately.

    Return None unless slow and usual steps differ clearly, and usual steps are as fast as the peers.


    Args:
        rows: The run.
        values: [N] The excess.
        noise: [N] Standard deviation of a step.
        start: Row near which the ranks became slow.
        beside_pauses: True to find the most frequent size of slow steps, and ignore longer and rarer pauses.

    """
    first = max(start, len(rows.blocks))
    some = values[first:]
    if len(some) < NOISE_ROWS:
        return None
    low, high = float(np.quantile(some, 0.05)), float(some.max())
    if beside_pauses:
        unexplained = some[some >= series_median(some) + CERTAIN_Z * series_median(noise[first:])]
        high = series_median(unexplained) if len(unexplained) else high
    last = np.zeros(len(some), np.bool_)
    for _ in range(8):
        above = some > (low + high) / 2
        if above.all() or not above.any():
            return None
        if (above == last).all():
            break
        last, low, high = above, float(np.mean(some[~above])), series_median(some[above])
    runs = int((np.diff(above.astype(np.int8), prepend=0) == 1).sum())
    share = float(above.mean())
    # Independent slow steps would form about len * share * (1 - share) runs; stretches of many steps form far fewer.
    if runs < max(3.0, len(some) * share * (1 - share) / 3):
        return None
    if not AT_PEERS.is_reached(low / max(float(some.mean()), 1e-9)):
        return None
    if high - low < CERTAIN_Z * max(series_median(noise[first:]), series_median(noise[first:][above])):
        return None
    # Estimate the number of slow steps in each block, unless its noise is larger than one slow step.
    counts = np.maximum(np.rint((values - low) * rows.steps / (high - low)), 0.0)
    counts[noise * np.sqrt(rows.steps) * CERTAIN_Z > high - low] = 0.0
    return Stretches(counts > 0, np.minimum(counts, rows.steps), single=True)


def _most_likely(ratios: Floats) -> Bools:
    """Return the most likely label of each row, [N] (Viterbi, 1967): True for slow, False for usual.

    Each change of label costs EVIDENCE.


    Args:
        ratios: [N] Log likelihood ratio of slow against usual in each row.

    """
    favour, each = 0.0, []
    for ratio in ratios.tolist():
        favour = (EVIDENCE if favour > EVIDENCE else max(favour, -EVIDENCE)) + ratio
        each.append(favour)
    favours = np.array(each)
    # The state of a row is final if its evidence is so strong that no later row can change it. Every other row has the
    # state of the next final row.
    is_decided = np.abs(favours) > EVIDENCE
    is_decided[-1:] = True
    place = np.where(is_decided, np.arange(len(favours)), len(favours))
    states: Bools = favours[np.minimum.accumulate(place[::-1])[::-1]] > 0
    return states


RECURRENCES = Threshold(
    4,
    of="number of slow stretches of the same ranks at which ddpmon reports them as one recurring slowdown",
    why="Between four stretches there are three intervals. Two equal intervals may be chance.",
)
UNEVEN = Threshold(
    0.08,
    of="mean deviation of the starts of slow stretches from a regular rhythm, as a share of the period",
    why="Random starts deviate by a quarter of the period.",
    below=True,
    stay=0.12,
)
PREDICTED_SHARE = Threshold(
    0.8,
    of="share of the start times predicted by a regular rhythm at which a slow stretch really starts",
    why="One stretch in five may be missing, because another rank was slow at that time.",
)
BETTER = 0.5
"""The less likely unit (steps or seconds) is chosen if deviations from the rhythm in this unit are below this share of
the deviations in the other unit."""
EXACT_STEPS = 0.1
"""Maximum mean deviation, in steps, of a rhythm whose period is a fixed number of steps."""
PERMUTATIONS = 500
"""Number of sets of random beginnings. A rhythm must be more regular than each set."""
RECENT_STRETCHES = 64
"""Number of latest stretches from which the rhythm is computed."""
OUTLASTS = 2
"""Length, as a multiple of the longest earlier stretch, beyond which the present stretch is a lasting slowdown."""
LONE = 3
"""Gap after an early stretch, as a multiple of the usual gap, beyond which that stretch is not part of the rhythm: the
rank may have paused once before the rhythm began."""
FINE = 0.5
"""Maximum length of a row, as a share of a stretch's length, that is short enough to locate the beginning."""


@dataclass(frozen=True)
class Recurrence:
    """Recurring slow stretches, and their rhythm."""

    spans: list[tuple[int, int]]
    """First row of each stretch, and the row after its last one."""
    pattern: Literal["steps", "seconds", "irregular"]
    every: float | None
    has_ended: bool
    """True if there was no stretch for so long that the slowdown no longer recurs."""


def recurrence(rows: RunRows, found: Stretches, *, held: bool = False) -> Recurrence | None:
    """Describe slow stretches as one recurring slowdown; None if they are too few or one is far longer than the others.

    Args:
        rows: The run.
        found: The slow stretches.
        held: True if they had a rhythm at the last judgement.

    """
    spans = found.spans
    lengths = np.array([found.counts[begin:end].sum() for begin, end in spans])
    if not RECURRENCES.is_reached(len(spans)) or 2 * lengths.max() > rows.steps[spans[0][0] :].sum():
        return None
    if not found.single and spans[-1][1] == len(rows) and lengths[-1] > OUTLASTS * lengths[:-1].max():
        return None
    usual = float(np.median(lengths))
    exact = {first for first, _ in found.known}
    begins = [
        step
        for (step, _), (begin, _) in zip(found.steps(rows), spans, strict=True)
        # The beginning of a stretch is known only where rows are short compared with stretches.
        if step in exact or rows.steps[begin] <= max(1.0, FINE * usual)
    ][-RECENT_STRETCHES:]
    last, now = rows.index(int(rows.world.step[-1])), len(rows) - 1
    quiet = float(rows.steps[spans[-1][1] : last + 1].sum())
    lone = _lone(begins)
    rhythmic = begins[lone:]
    rhythm = _rhythm(rows, rhythmic, single=usual < 2, held=held) if RECURRENCES.is_reached(len(rhythmic)) else None
    if rhythm is None:
        span = float(rows.steps[spans[0][0] : spans[-1][1]].sum())
        begun = found.counts[spans[0][0] :].sum() if found.single else len(spans)
        share = begun / max(span, begun + 1.0)
        return Recurrence(spans, "irregular", None, -quiet * log(1 - share) >= EVIDENCE)
    unit, every = rhythm
    spans = [one for one in spans if not lone or rows.first[one[0]] >= rhythmic[0]]
    if unit == "seconds":
        quiet = float(rows.begin_s[now] - rows.begin_s[spans[-1][0]])
    else:
        quiet = float(rows.first[now] - rows.first[spans[-1][0]])
    # Estimate the probability that a stretch is missing at a due time from the number of stretches so far.
    return Recurrence(spans, unit, every, (quiet // every - 1) * log(2 * len(rhythmic) + 2) >= EVIDENCE)


def _lone(begins: Sequence[int]) -> int:
    """Return the number of stretches at the start that are not part of the rhythm, because a far longer gap follows."""
    gaps = np.diff(begins)
    is_usual = gaps <= LONE * np.median(gaps) if len(gaps) else np.ones(0, bool)
    return int(is_usual.argmax()) if is_usual.any() else 0


def _rhythm(
    rows: RunRows, begins: list[int], *, single: bool, held: bool
) -> tuple[Literal["steps", "seconds"], float] | None:
    """Return the unit and the period if the beginnings have a rhythm, else None.

    Args:
        rows: The run.
        begins: First steps of the stretches.
        single: True if each stretch is a single step.
        held: True if they had a rhythm at the last judgement.

    """
    in_steps, in_seconds = np.array(begins, np.float64), np.interp(begins, rows.first, rows.begin_s)
    by_steps, every_steps = _unevenness(in_steps[None])
    by_seconds, every_seconds = _unevenness(in_seconds[None])
    # A script that does something every n steps has an exact period in steps. A disturbance that lasts for several
    # steps usually follows the clock, so its period is tested in seconds first.
    nearest = float(np.median(rows.length_ms)) / 1e3 / every_seconds[0]
    by_program = single or by_steps[0] * every_steps[0] < EXACT_STEPS
    likely, other = (by_steps[0], by_seconds[0]) if by_program else (by_seconds[0], by_steps[0])
    takes_other = other < BETTER * likely and (by_program or by_seconds[0] > nearest)
    in_unit = in_steps if by_program != takes_other else in_seconds
    uneven = other if takes_other else likely
    if not UNEVEN.is_reached(uneven, held=held):
        return None
    rng = np.random.default_rng(0)
    draws = rng.uniform(in_unit[0], in_unit[-1], (PERMUTATIONS, len(begins)))
    draws[:, 0], draws[:, -1] = in_unit[0], in_unit[-1]
    draws.sort(axis=1)
    if in_unit is in_steps:
        draws = np.rint(draws)
    if not held and uneven >= _unevenness(draws)[0].min():
        return None
    if in_unit is in_seconds:
        return "seconds", float(every_seconds[0])
    every = float(every_steps[0])
    return "steps", float(round(every)) if by_steps[0] * every < 1 else every


def _unevenness(begins: Floats) -> tuple[Floats, Floats]:
    """Return how far each row's beginnings deviate from a rhythm (mean, as a share of the period), and the period."""
    gaps = np.diff(begins, axis=1)
    period = np.maximum(np.median(gaps, axis=1, keepdims=True), 1e-9)
    for _ in range(2):
        place = np.rint((begins - begins[:, :1]) / period)
        place -= place.mean(axis=1, keepdims=True)
        middle = begins.mean(axis=1, keepdims=True)
        slope = (place * (begins - middle)).sum(axis=1) / np.maximum(np.square(place).sum(axis=1), 1e-9)
        period = np.maximum(slope[:, None], 1e-9)
    stray = np.abs(begins - middle - place * period).mean(axis=1) / period[:, 0]
    places = (begins[:, -1] - begins[:, 0]) / period[:, 0] + 1
    return np.where(begins.shape[1] >= PREDICTED_SHARE.enter * places, stray, 1.0), period[:, 0]
