"""Stretches of the run over which a series is high."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """True if each step was labelled by itself, because slow and usual steps are far apart."""
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
        start: Row near which it became slow.
        level_ms: Excess of a slow step as last described, if all steps were slow.

    """
    values, noise, memory = series
    by_step = steps_apart(rows, values, noise, start)
    if by_step is not None:
        return by_step
    variance = np.square(noise) * memory / rows.steps
    slow, _ = _slow_rows(values, variance, rows.steps, start, level_ms, 0.0)
    if level_ms and not slow.any():
        # An earlier description proves that the slowdown began, even if noise now hides that: only its end is open.
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
        start: Row near which it became slow.
        level_ms: Excess of a slow step as last described; None if unknown.
        known: Log likelihood ratio to add at the row `start`, as prior evidence that it is slow.

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
    """Label each step by itself; None unless slow and usual steps are far apart and usual ones as fast as the peers.

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
    """Return the most likely states, True for slow, of a chain with two states, [N] (Viterbi, 1967).

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
