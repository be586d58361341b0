"""A stretch of steps over which one series of excesses is high: where it begins, and whether it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, median
from ddpmon.analysis.statistics.change_points import ENOUGH, ending, onset, step_up
from ddpmon.analysis.statistics.excess import SMOOTHED, Chance, noisier, restless
from ddpmon.analysis.statistics.wandering import of_each, of_one
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

STAYS = 0.5
"""Share of what makes a rank late that keeps it late: halfway between that and its peers."""
FEWEST_STEPS = Threshold(
    20,
    of="steps in the window",
    why="A judgement: the running median leaves 16, eight blocks of two to tell chance from; fewer tell it badly.",
)
JUMP = Threshold(
    90.0,
    of="chi-square of a step up (`change_points.step_up`), where noise that wanders hides it in a mean",
    why="One window of one rank estimates wandering noise badly: in 1.5 hours of it several steps up had more than"
    " 60, none 90 (benchmarks/calibration.py, seeds below 1000).",
    keeps=STAYS,
)
DROP = Threshold(
    40.0,
    of="chi-square of a step down, to less than half of what a rank was late, that ends it",
    why="Less than for a step up, as that so much is gone is asked for besides.",
)
SHORTEST = Threshold(
    8,
    of="steps of a stretch that is over",
    why="A judgement: as short as the shortest stretch that is looked for; less is a hiccup.",
)
GONE = Threshold(
    4.0,
    of="standard errors by which the last steps are below half a stretch's level",
    why="A judgement: chance does it in one of 30,000 looks (normal values); what is not over yet is found again.",
)
RECENT = (12, 24, 48, 96, 192)
"""Last steps that tell whether a stretch is over: few for what was plain, more for what was not."""
WANDERS, CALM = 0.5, 0.53
"""Times white noise, summed over the steps that it stays alike, below which noise hardly wanders; and the share of JUMP
that is enough then.
"""
SETTLED = 150
"""Steps that tell when a stretch began as well as more would: what was said of it then stays."""
REACH, MEMORIES = 60, 6.0
"""Steps, and times the noise's memory, by which the first estimate of the first step may be off."""
EDGE = SMOOTHED // 2
"""Steps that the running median cuts off at each end."""


@dataclass(frozen=True)
class LateStretch:
    """A stretch of steps, by index in the window, over which a column's own time exceeds its peers'."""

    column: int
    first: int
    last: int
    over_ms: float
    from_the_start: bool
    """It was late from the window's first step on: it may have begun earlier."""
    over: bool = False
    """The rank keeps up again."""

    def moved(self, by: int) -> LateStretch:
        """The same in a window that begins so many steps earlier."""
        if not by:
            return self
        return replace(self, first=self.first + by, last=self.last + by, from_the_start=False)

    def since(self, world: World, before: int | None) -> int:
        """Its first step. before: what was last said of it, which counts where the window does not show more."""
        first = int(world.step[self.first])
        return first if before is None or not self.from_the_start else min(before, first)

    def until(self, world: World) -> int | None:
        """Its last step; None while it lasts."""
        return int(world.step[self.last]) if self.over else None


def stretch_after(
    after: int, excess: Floats, smooth: Floats, noise: Chance, column: int, length: int, since: int | None = None
) -> LateStretch | None:
    """The `_stretch` of a column, in what comes from an index on."""
    before = None if since is None else since - after
    late = _stretch(excess[after:, column], smooth[after:, column], noise, column, length, before)
    return late and late.moved(after)


def _stretch(
    excess: Floats, smooth: Floats, noise: Chance, column: int, length: int, since: int | None
) -> LateStretch | None:
    """The stretch that reaches to the end of the window, or that has just ended. length: steps that show it."""
    end = len(excess) - 1
    begin = begin_of(excess, end, length, noise.per_step(column), since)
    last = _last_before_a_drop(excess, begin)
    if last is not None and since is not None and last < since:  # that was another one, before the reported one
        begin = since
        last = _last_before_a_drop(excess, begin)
    if last is not None:
        return LateStretch(column, begin, last, median(excess[begin : last + 1]), begin <= EDGE, over=True)
    level = median(excess[begin:])
    before = float(smooth[: max(1, begin - EDGE)].mean()) if begin > 2 * EDGE else 0.0
    typical = max(level, float(np.quantile(smooth, 0.75)) if begin > end - 2 * RECENT[0] else level)
    for n in RECENT:
        if n > max(RECENT[0], end + 1 - begin - EDGE) or n > len(smooth):
            break
        recent = float(smooth[-n:].mean())
        error = float(noise.bound_ms(n, GONE.enter)[column])
        if recent < typical / 2 and recent < typical - error:
            return ended(excess, smooth, column, since or 0)
    if end + 1 - begin < RECENT[0] and level < before:
        return None
    return LateStretch(column, begin, end, level, begin <= EDGE)


def _last_before_a_drop(excess: Floats, begin: int) -> int | None:
    """The last step of a stretch that begins there, if its level has fallen since to less than half."""
    end = len(excess) - 1
    if end - begin <= 2 * RECENT[0]:
        return None
    drop, shows = step_up(-excess[begin:], RECENT[0], end - begin - SHORTEST.enter)
    fallen = median(excess[begin + drop :]) < median(excess[begin : begin + drop]) / 2
    return begin + drop - 1 if DROP.reached(shows) and fallen else None


def is_settled(since: int | None, end: int) -> bool:
    """Whether the first step of a stretch stays as reported: neither further steps nor better series improve it."""
    return since is not None and (since <= EDGE or end - since > SETTLED)


def begin_of(excess: Floats, end: int, length: int, noise: float, since: int | None) -> int:
    """The first step of a stretch that reaches to the end; it stays as reported once many steps agree.

    length: steps that show it. noise: variance of a long sum over its steps. since: the first step as last reported.
    """
    if since is not None and is_settled(since, end):
        return max(0, since)
    rough = onset(excess, end, length, noise)
    white, wanders, lasts = of_one(excess)
    if wanders * lasts < WANDERS * white and rough > EDGE:
        return rough
    first = max(0, rough - REACH - round(MEMORIES * lasts))
    segment = max(0, first - REACH)
    last = end - segment - min(SHORTEST.enter, length) + 1
    if last <= first - segment:
        return rough
    begin, shows = step_up(excess[segment:], first - segment, last)
    begin += segment
    if segment == 0 and shows < ENOUGH and begin > EDGE and np.mean(excess[:begin]) > np.mean(excess[begin:]) / 2:
        return 0  # it was late all along
    return begin


@dataclass(frozen=True)
class Risen:
    """What may be a level that rose at once, as noise that wanders does not. noise: `of_one` of the series."""

    excess: Floats
    """From index `after` on."""
    after: int
    noise: tuple[float, float, float]

    def late(self, column: int, least: float, asked: float, since: int | None) -> LateStretch | None:
        """A rank whose level rose and stays up.

        asked: share of what is asked for. since: the first step as last reported.
        """
        excess, after, (white, wanders, lasts) = self.excess, self.after, self.noise
        end = len(excess) - 1
        if end < FEWEST_STEPS.enter or (since is not None and since <= after):
            return None
        begin, shows = step_up(excess, 1, max(1, end + 1 - 2 * SHORTEST.enter), self.noise)
        plain = CALM if wanders * lasts < WANDERS * white else 1.0
        if shows < JUMP.enter * asked * plain:
            return None
        shows /= noisier(excess[begin:], restless(excess))
        level, before = median(excess[begin:]), median(excess[max(0, begin - SHORTEST.enter) : begin])
        if shows < JUMP.enter * asked * plain or min(level, level - before) < least * min(asked, 1.0):
            return None
        if since is None and _last_before_a_drop(excess, begin) is not None:
            return None  # it is down again
        begin = begin if since is None else since - after
        return LateStretch(column, begin, end, level, from_the_start=False).moved(after)


def jumps(excess: Floats, columns: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int, Risen]]:
    """Each of the columns, by place, from its own index on: at once for all of the same, as numbers alone are slow."""
    for first in sorted(set(after)):
        places = [place for place, each in enumerate(after) if each == first]
        series = np.ascontiguousarray(excess[first:, [columns[place] for place in places]].T)
        noises = of_each(series) if series.shape[1] > FEWEST_STEPS.enter else [(0.0, 0.0, 1.0)] * len(places)
        for place, values, noise in zip(places, series, noises, strict=True):
            yield place, Risen(values, first, noise)


def ended(excess: Floats, smooth: Floats, column: int, since: int = 0) -> LateStretch | None:
    """The stretch around the latest steps, if it has ended. since: its first step as reported."""
    since = max(0, since - EDGE)
    if len(smooth) - since < SHORTEST.enter:
        return None
    highest = int(np.convolve(smooth[since:], np.ones(SHORTEST.enter), "valid").argmax())
    inside = since + highest + SHORTEST.enter // 2 + EDGE
    late = burst(excess, column, inside)
    return late if late.last < len(excess) - 1 - EDGE and SHORTEST.reached(late.last - late.first + 1) else None


def burst(excess: Floats, column: int, inside: int) -> LateStretch:
    """The stretch that is over and holds index `inside`."""
    first, last = onset(excess, inside), ending(excess, inside)
    level = median(excess[first : last + 1])
    return LateStretch(column, first, last, level, first <= EDGE, over=True)
