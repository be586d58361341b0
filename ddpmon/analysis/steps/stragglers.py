"""Ranks that are late for a stretch of steps: which, since when, and whether it is over.

A rank is late over a stretch if its mean excess over its peers there (`excess.steady` first) is at least 8% of a
typical own time, and exceeds chance: z standard errors (`excess.chance`, which knows noise that lasts), with z for a
share of false alarms of FALSE_ALARMS over all ranks and stretches looked at together (Bonferroni). Where noise hides
that in the own time, one phase may show it (`one_phase`) that has no more than twice as much. What was found before
stays while half of that is left. The first and last steps come from `change_points`. A stretch that is over stays told,
and what comes after it is judged by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.change_points import ending, onset
from ddpmon.analysis.statistics.excess import SMOOTHED, Chance, chance, running_total
from ddpmon.analysis.steps.one_phase import in_each_phase
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES

FEWEST_STEPS = 20
OVER_PEERS = 0.08
"""Of a typical own time: a delay of 10% is found although what is measured of it strays around 10%."""
IN_ONE_PHASE = 3.0
"""Times as much must it be to be told for what one phase shows alone: five more series stray, each in its way."""
EXCESS_MS = 1.0
FALSE_ALARMS = 1e-6
STRETCHES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
BURSTS = (8, 16, 32, 64, 128, 192)
SHORTEST = 8
"""Steps of a stretch that is over and still told of."""
STAYS = 0.5
RECENT = (12, 24, 48, 96)
GONE = 3.0
"""Standard errors below half its level after which a stretch is over."""
EDGE = SMOOTHED // 2
"""Steps that the running median cuts off at each end."""


@dataclass(frozen=True)
class Late:
    """A stretch of steps, by index in the window, over which a column's own time exceeds its peers'."""

    column: int
    first: int
    last: int
    over_ms: float
    from_the_start: bool
    """It was late from the window's first step on: it may have begun earlier."""
    over: bool = False
    """The rank keeps up again."""

    def moved(self, by: int) -> Late:
        """The same in a window that begins so many steps earlier."""
        if not by:
            return self
        return replace(self, first=self.first + by, last=self.last + by, from_the_start=False)


def late(
    world: World,
    known: Collection[int] = (),
    skip: Collection[int] = (),
    over: Mapping[int, int] | None = None,
) -> list[Late]:
    """Columns that are late now, worst first, then those that were for a while.

    known: late when last looked at. over: by column, the last index of a stretch that is known to be over.
    """
    if len(world.ranks) < 2 or len(world) < FEWEST_STEPS:
        return []
    excess, smooth, sums = world.excess_ms, world.smooth_ms, world.total_ms
    typical = float(np.median(world.typical_ms))
    noise = chance(sums, typical)
    least = max(EXCESS_MS, OVER_PEERS * typical)

    share = np.ones(smooth.shape[1])
    share[list(known)] = STAYS
    over = over or {}
    lengths, means = _last_means(sums, over)
    exceeding = dict(_exceeding(lengths, means, noise, least, share, len(world.ranks)))
    stretches = [
        _stretch_after(over.get(column, -1) + 1, excess, smooth, noise, column, length)
        for column, length in exceeding.items()
        if column not in skip
    ]
    hidden = [column for column in _over_least(means, least * share) if column not in exceeding and column not in skip]
    stretches += _late_in_one_phase(world, hidden, least, share, over)
    now = [stretch for stretch in stretches if stretch and not stretch.over and stretch.over_ms >= least * STAYS]
    past = [stretch for stretch in stretches if stretch and stretch.over]
    if len(now) > (len(world.ranks) + 1) // 2:
        now = []  # what most ranks do is the rule, and the few that are faster hold nobody back
    now = _against_the_rest(world, now)
    taken = {stretch.column for stretch in now} | set(skip)
    past = [stretch for stretch in past if stretch.column not in taken and stretch.over_ms >= least]
    taken |= {stretch.column for stretch in past}
    for column in set(known) - taken:
        after = over.get(column, -1) + 1
        gone = _past(excess[after:, column], smooth[after:, column], column)
        if gone is not None and gone.over_ms >= least * STAYS:
            past.append(gone.moved(after))
    taken |= set(known) | set(over)
    for column, inside in _bursts(sums, noise, least):
        if column not in taken:
            found = _burst(excess[:, column], column, inside)
            if found.last < len(world) - 1 - EDGE and found.over_ms >= least and _stands_out(smooth, found, noise):
                past.append(found)
    order = lambda stretch: -stretch.over_ms
    return sorted(now, key=order) + sorted(past, key=order)


@cache
def deviations(tries: int) -> float:
    """Standard deviations that are exceeded by chance in FALSE_ALARMS of all cases with so many tries."""
    return NormalDist().inv_cdf(1 - FALSE_ALARMS / tries)


def _last_means(sums: Floats, over: Mapping[int, int]) -> tuple[list[int], Floats]:
    """Lengths of stretches that reach to the last step, and the mean excess in each: [lengths, R].

    Nothing where a stretch would begin before the end of one that is over.
    """
    steps = len(sums) - 1
    lengths = [n for n in STRETCHES if n < steps] + [steps]
    n = np.array(lengths)
    means: Floats = (sums[-1] - sums[steps - n]) / n[:, None]
    for column, last in over.items():
        means[n > steps - last - 1, column] = 0.0
    return lengths, means


def _over_least(means: Floats, least: Floats) -> list[int]:
    """Columns whose last steps are late by so much on average, chance or not; the latest first."""
    times = means.max(axis=0) / np.maximum(least, 1e-9)
    return [column for column in np.argsort(-times).tolist() if times[column] >= 1.0]


def _late_in_one_phase(
    world: World, columns: list[int], least: float, share: Floats, over: Mapping[int, int]
) -> list[Late]:
    """Stretches that one phase shows, of columns whose own time is late by enough, but not beyond chance."""
    found: dict[int, Late] = {}
    least *= IN_ONE_PHASE
    for phase in in_each_phase(world, columns, least * STAYS):
        known = np.ones(phase.excess_ms.shape[1])
        known[: len(phase.columns)] = share[phase.columns]
        lately = {place: over[column] for place, column in enumerate(phase.columns) if column in over}
        tries = len(OWN_PHASES) * len(world.ranks)
        for place, length in _exceeding(*_last_means(phase.total_ms, lately), phase.noise, least, known, tries):
            if place >= len(phase.columns):
                continue
            after, column = lately.get(place, -1) + 1, phase.columns[place]
            one = _stretch_after(after, phase.excess_ms, phase.smooth_ms, phase.noise, place, length)
            if one is None:
                continue
            own = float(np.median(world.excess_ms[one.first : one.last + 1, column]))
            if own < max(least * share[column], one.over_ms / 2):
                continue  # other phases of it are as much shorter
            if column not in found or own > found[column].over_ms:
                found[column] = replace(one, column=column, over_ms=own)
    return list(found.values())


def _exceeding(
    lengths: list[int], means: Floats, noise: Chance, least: float, share: Floats, tries: int
) -> list[tuple[int, int]]:
    """Columns whose last steps are late beyond chance, and how many steps show it best.

    lengths, means: `_last_means`. tries: series that are looked at together.
    """
    z = deviations(tries * len(lengths))
    asked = share * np.maximum([noise.bound_ms(n, z) for n in lengths], least)
    times = means / np.maximum(asked, 1e-9)
    best = times.argmax(axis=0)
    return [(column, lengths[best[column]]) for column in np.flatnonzero(times.max(axis=0) > 1.0).tolist()]


def _stretch_after(after: int, excess: Floats, smooth: Floats, noise: Chance, column: int, length: int) -> Late | None:
    """The `_stretch` of a column, in what comes from an index on."""
    found = _stretch(excess[after:, column], smooth[after:, column], noise, column, length)
    return found and found.moved(after)


def _stretch(excess: Floats, smooth: Floats, noise: Chance, column: int, length: int) -> Late | None:
    """The stretch that reaches to the end of the window, or that has just ended. length: steps that show it."""
    end = len(excess) - 1
    begin = onset(excess, end, length, noise.per_step(column))
    level = float(np.median(excess[begin:]))
    before = float(smooth[: max(1, begin - EDGE)].mean()) if begin > 2 * EDGE else 0.0
    typical = max(level, float(np.quantile(smooth, 0.75)) if begin > end - 2 * RECENT[0] else level)
    for n in RECENT:
        if n > max(RECENT[0], end + 1 - begin - EDGE) or n > len(smooth):
            break
        recent = float(smooth[-n:].mean())
        error = float(noise.bound_ms(n, GONE)[column])
        if recent < typical / 2 and recent < typical - error:
            return _past(excess, smooth, column)
    if end + 1 - begin < RECENT[0] and level < before:
        return None
    return Late(column, begin, end, level, begin <= EDGE)


def _past(excess: Floats, smooth: Floats, column: int) -> Late | None:
    """The stretch around the latest steps, if it has ended."""
    if len(smooth) < SHORTEST:
        return None
    inside = int(np.convolve(smooth, np.ones(SHORTEST), "valid").argmax()) + SHORTEST // 2 + EDGE
    found = _burst(excess, column, inside)
    return found if found.last < len(excess) - 1 - EDGE and found.last - found.first + 1 >= SHORTEST else None


def _burst(excess: Floats, column: int, inside: int) -> Late:
    first, last = onset(excess, inside), ending(excess, inside)
    level = float(np.median(excess[first : last + 1]))
    return Late(column, first, last, level, first <= EDGE, over=True)


def _bursts(sums: Floats, noise: Chance, least: float) -> list[tuple[int, int]]:
    """Columns that may have been late for a while, and an index inside that while."""
    steps = len(sums) - 1
    usual = noise.of_a_typical_rank()
    z = deviations(sums.shape[1] * steps)
    best: dict[int, tuple[float, int]] = {}
    for n in [n for n in BURSTS if n < steps]:
        apart = n // 8
        inside = sums[n::apart] - sums[:-n:apart]
        top = inside.max(axis=0) / n
        bound = float(usual.bound_ms(n, z)[0]) if sums.shape[1] > 2 else 0.0  # of two ranks both have the change
        for column in np.flatnonzero(top >= max(least, bound)).tolist():
            middle = int(inside[:, column].argmax()) * apart + n // 2 + EDGE
            best[column] = max(best.get(column, (0.0, 0)), (float(top[column]) * n**0.5, middle))
    return [(column, middle) for column, (_, middle) in best.items()]


def _stands_out(smooth: Floats, found: Late, noise: Chance) -> bool:
    """Whether a stretch that is over is beyond chance, when its own level is no part of that."""
    first, end = max(0, found.first - EDGE), found.last + 1 - EDGE
    series = smooth[:, found.column].copy()
    mean = float(series[first:end].mean())
    series[first:end] -= mean
    rest = replace(chance(running_total(series[:, None]), 0.0), freedom=noise.freedom, unseen_ms=noise.unseen_ms)
    z = deviations(len(smooth) * smooth.shape[1])
    bound = float(rest.bound_ms(end - first, z)[0])
    if smooth.shape[1] > 2:
        bound = max(bound, float(noise.of_a_typical_rank().bound_ms(end - first, z)[0]))
    return end - first >= SHORTEST and mean >= bound


def _against_the_rest(world: World, now: list[Late]) -> list[Late]:
    """The same with levels over those ranks that are not late: of several, each makes the others look less late."""
    if len(now) < 2:
        return now
    rest = np.delete(world.own_ms, [stretch.column for stretch in now], axis=1)
    typical = np.median(rest, axis=1)
    better = []
    for stretch in now:
        over = world.own_ms[:, stretch.column] - typical
        begin = onset(over, stretch.last)
        level = float(np.median(over[begin:]))
        if stretch.last + 1 - begin < RECENT[0]:
            begin, level = stretch.first, float(np.median(over[stretch.first :]))
        better.append(Late(stretch.column, begin, stretch.last, level, begin <= EDGE))
    return better
