"""Slow stretches that recur: at regular intervals of steps, at regular intervals of seconds, or irregularly.

In a rhythm, the beginnings of stretches are equally far apart. They must be more regular than each of PERMUTATIONS sets
of as many random beginnings over the same time (a randomisation test).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np

from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import EVIDENCE
from ddpmon.analysis.slowness.stretches import Stretches
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.threshold import Threshold

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
"""The less likely unit of time (steps or seconds) is chosen if deviations in it are below this share of those in the
other."""
EXACT_STEPS = 0.1
"""Maximum mean deviation, in steps, of a rhythm whose period is a fixed number of steps."""
PERMUTATIONS = 500
"""Number of sets of random beginnings that a rhythm must be more regular than."""
RECENT_STRETCHES = 64
"""Number of latest stretches from which the rhythm is computed."""
OUTLASTS = 2
"""Length, as a multiple of the longest earlier stretch, beyond which the present stretch is a lasting slowdown."""
LONE = 3
"""Gap after an early stretch, as a multiple of the usual gap, beyond which that stretch is not part of the rhythm: the
rank may have paused once before the rhythm began."""
FINE = 0.5
"""Maximum length of a row, as a share of a stretch's length, at which the row is short enough to locate the
beginning."""


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
    """Describe slow stretches as one recurring slowdown; return None if they are too few or one is far longer than the
    others.

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
    """Return the number of stretches before the rhythm: those at the start that a far longer gap than usual follows."""
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
    """Return, for each row of beginnings, the mean deviation from the best period as a share of that period, and the
    period.
    """
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
