"""Ranks that are late for a stretch of steps: which, since when, and whether it is over.

A rank is late over a stretch if its mean excess over its peers there (`excess.steady` first) is at least 8% of a
typical own time, and exceeds chance: z standard errors (`excess.chance`, with the noise's own memory), with z for a
share of false alarms of FALSE_ALARMS over all ranks and stretches looked at together (Bonferroni). Where noise hides
that in the own time, one phase may show it (`one_phase`) that has no more than twice as much, or a step up as noise
that wanders does not make (`change_points.step_up`). A rank that is the last in each of a few steps, by far, needs less
of that. What was reported before stays until it is seen to end (`stretches`). What comes after a stretch that is over
is judged by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, median, medians, running_total
from ddpmon.analysis.statistics.excess import EXPLAINS, SMOOTHED, deviations, noisier
from ddpmon.analysis.statistics.wandering import tells_tails
from ddpmon.analysis.steps.certain import FEWEST_CERTAIN, MANY, certain
from ddpmon.analysis.steps.one_phase import IN_ONE_PHASE, MOST, PhaseExcess, in_each_phase
from ddpmon.analysis.steps.stretches import (
    EDGE,
    FEWEST_STEPS,
    RECENT,
    SHORTEST,
    STAYS,
    LateStretch,
    begin_of,
    burst,
    ended,
    is_settled,
    jumps,
    stretch_after,
)
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

OVER_PEERS = Threshold(
    0.08,
    of="share of a typical own time by which a rank's exceeds its peers'",
    why="A delay of 10% is found although its measure strays as much: 15 of 15 (benchmarks/diagnosis.py).",
    keeps=STAYS,
)
EXCESS_MS = Threshold(
    0.2,
    of="ms by which it exceeds them",
    why="Three times what the probe itself takes of a step at most (0.073 ms; benchmarks/overhead.py): ranks may differ"
    " by some of that. Clocks tell microseconds; whether more is worth it, its share and its gain decide.",
    keeps=STAYS,
)
CARRIES = Threshold(
    1.5,
    of="times what a stretch must exceed on average that any of its steps counts for",
    why="A delay lasts, and two thirds of its steps carry it. A burst of some steps that carries a mean of many past"
    " chance does not (benchmarks/calibration.py).",
    below=True,
)
IN_MOST = Threshold(
    0.7,
    of="share of the steps of a short stretch in which a rank is late by a third of what it is on average",
    why="A delay is in all of them but those since its end. Of seven steps of noise with Pareto tails five were long by"
    " chance, once in 3.5 hours of steps of a second, and their running median carried the mean"
    " (benchmarks/calibration_hunt.py).",
)
SHORT = 24
"""Steps of a stretch that is short: a mean of more has little of any five."""
JUMP_OF_A_PHASE = 2 / 3
"""Share of what a step up must show that is enough in one phase, out of which noise that all phases share is taken."""
STRETCHES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Last steps over which lateness is looked for, each at most half as many again: none is far from the true length."""
BURSTS = (8, 16, 32, 64, 128, 192)
"""Steps over which lateness that may be over is looked for; they are moved by an eighth of themselves, so fewer do."""
FADES, FADED = 24, 0.75
"""Last steps, and the share of what a rank was late below which its phases are looked at for whether it still is."""


def late(
    world: World,
    was_late: Mapping[int, int] | None = None,
    skip: Collection[int] = (),
    over: Mapping[int, int] | None = None,
) -> list[LateStretch]:
    """Columns that are late now, worst first, then those that were for a while.

    was_late: at the last judgement: by column, the index of the first step that was reported, which may lie before the
    window. over: by column, the last index of a stretch that has ended.
    """
    if len(world.ranks) < 2 or len(world) < FEWEST_CERTAIN.enter:
        return []
    was_late = was_late or {}
    if not FEWEST_STEPS.reached(len(world)):
        return certain(world, was_late, skip, EXCESS_MS.enter)
    excess, smooth = world.excess_ms, world.smooth_ms
    plain = certain(world, was_late, skip, EXCESS_MS.enter, in_noise=True)
    least = max(EXCESS_MS.enter, OVER_PEERS.enter * world.usual_ms)

    over = over or {}
    stretches = _stretches(world, _Asked(least, _shares(world, was_late), was_late, over, skip))
    taken = {stretch.column for stretch in stretches}
    stretches += [stretch for stretch in plain if stretch.column not in taken]
    now = [stretch for stretch in stretches if not stretch.over and stretch.over_ms >= least * STAYS]
    past = [stretch for stretch in stretches if stretch.over]
    if len(now) > (len(world.ranks) + 1) // 2:
        now = []  # what most ranks do is the rule, and the few that are faster hold nobody back
    now = _against_the_rest(world, _dated(world, now, was_late, over), was_late)
    taken = {stretch.column for stretch in now} | set(skip)
    past = [stretch for stretch in past if stretch.column not in taken and stretch.over_ms >= least]
    taken |= {stretch.column for stretch in past}
    for column in set(was_late) - taken:
        after = over.get(column, -1) + 1
        gone = ended(excess[after:, column], smooth[after:, column], column, was_late[column] - after)
        if gone is not None and gone.over_ms >= least * STAYS:
            past.append(gone.moved(after))
    taken |= set(was_late) | set(over)
    for column, inside in _bursts(world, least):
        if column not in taken:
            one = burst(excess[:, column], column, inside)
            if one.last < len(world) - 1 - EDGE and one.over_ms >= least and _stands_out(world, one):
                past.append(one)
    order = lambda stretch: -stretch.over_ms
    return sorted(now, key=order) + sorted(past, key=order)


def late_by_little(
    world: World, was_late: Mapping[int, int], skip: Collection[int], over_peers: Threshold[float]
) -> list[LateStretch]:
    """Columns that are late now by a share of the own time that says little of one alone, or were till now.

    was_late, skip: as in `late`.
    """
    if not FEWEST_STEPS.reached(len(world)):
        return []
    least = max(EXCESS_MS.enter, over_peers.enter * world.usual_ms)
    asked = _Asked(least, _shares(world, was_late), was_late, {}, skip)
    stretches = _stretches(world, asked)
    now = [stretch for stretch in stretches if not stretch.over and stretch.over_ms >= least * STAYS]
    taken = {stretch.column for stretch in now}
    gone = [stretch for stretch in stretches if stretch.over]
    left = (ended(world.excess_ms[:, c], world.smooth_ms[:, c], c, was_late[c]) for c in set(was_late) - taken)
    gone += [stretch for stretch in left if stretch]
    past = {stretch.column: stretch for stretch in gone if stretch.over_ms >= least * STAYS}
    return _dated(world, now, was_late, {}) + list(past.values())


def _shares(world: World, was_late: Collection[int]) -> Floats:
    """[R] Of what is asked for: less of ranks that were late."""
    share = np.ones(len(world.ranks))
    share[list(was_late)] = STAYS
    return share


@dataclass(frozen=True)
class _Asked:
    """What a stretch must show."""

    least_ms: float
    share: Floats
    """[R] Of that, by whether the rank was late when last looked at."""
    since: Mapping[int, int]
    """By column that was: the index of its first step."""
    over: Mapping[int, int]
    """By column: the last index of a stretch that is over."""
    skip: Collection[int]

    def after(self, column: int) -> int:
        """The first index that may be in a stretch."""
        return self.over.get(column, -1) + 1


def _stretches(world: World, asked: _Asked) -> list[LateStretch]:
    """One of each rank that is late: by a mean of its last steps, by one phase, by a step up, or because it was."""
    excess, smooth = world.excess_ms, world.smooth_ms
    lengths, means = _last_means(world.total_ms, asked.over)

    def stretch(column: int, length: int) -> LateStretch | None:
        since = asked.since.get(column)
        return stretch_after(asked.after(column), excess, smooth, world.noise, column, length, since)

    exceeding = dict(_exceeding(world, lengths, means, asked.least_ms, asked.share, len(world.ranks)))
    by_column = {column: stretch(column, length) for column, length in exceeding.items() if column not in asked.skip}
    hidden = [c for c in _over_least(means, asked.least_ms * asked.share) if c not in exceeding and c not in asked.skip]
    lately = smooth[-FADES:].mean(axis=0)
    for column in asked.since:
        one = by_column.get(column)
        if column not in asked.skip and column not in hidden and (not one or lately[column] < FADED * one.over_ms):
            hidden.append(column)
    for one in _late_in_one_phase(world, hidden, asked):
        by_own_time = by_column.get(one.column)
        if one.over or not by_own_time or by_own_time.over:  # noise that wanders may fall by as much as a rank is late
            by_column[one.column] = one
    dubious = [c for c in hidden[:MOST] if not by_column.get(c) and (c in asked.since or tells_tails(len(smooth)))]
    for place, risen in jumps(excess, dubious, [asked.after(c) for c in dubious]):
        column = dubious[place]
        share = float(asked.share[column]) * world.noise.tail**2
        by_column[column] = risen.late(column, asked.least_ms, share, asked.since.get(column))
    for column in asked.since:
        if not by_column.get(column) and column not in asked.skip:
            by_column[column] = stretch(column, RECENT[0])
    return [one for one in by_column.values() if one]


def _last_means(sums: Floats, over: Mapping[int, int]) -> tuple[list[int], Floats]:
    """Lengths of stretches that reach to the last step, and the mean excess in each: [lengths, R].

    Nothing where a stretch would begin before the end of one that is over.
    """
    steps = len(sums) - 1
    lengths = [n for n in STRETCHES if n < steps] + [steps]
    n = np.array(lengths)
    means: Floats = (sums[-1] - sums[steps - n]) / n[:, None]
    if means.shape[1] > MANY:  # noise that is skewed has all ranks above the median of their peers
        means -= np.maximum(medians(means)[:, None], 0.0)
    for column, last in over.items():
        means[n > steps - last - 1, column] = 0.0
    return lengths, means


def _over_least(means: Floats, least: Floats) -> list[int]:
    """Columns whose last steps are late by so much on average, chance or not; the latest first."""
    times = means.max(axis=0) / np.maximum(least, 1e-9)
    return [column for column in np.argsort(-times).tolist() if times[column] >= 1.0]


def _late_in_one_phase(world: World, columns: list[int], asked: _Asked) -> list[LateStretch]:
    """Stretches that one phase shows, of columns whose own time is late by enough, but not beyond chance."""
    by_column: dict[int, LateStretch] = {}
    for phase in in_each_phase(world, columns, asked.least_ms * STAYS):
        least = phase.least_ms / STAYS
        share = np.ones(phase.excess_ms.shape[1])
        share[: len(phase.columns)] = asked.share[phase.columns]
        lately = {place: asked.over[column] for place, column in enumerate(phase.columns) if column in asked.over}
        tries = len(OWN_PHASES) * len(world.ranks)
        last_means = _last_means(phase.total_ms, lately)
        exceeding = dict(_exceeding(phase, *last_means, least, share, tries))
        late_there = _in_phase(phase, exceeding, asked, share, least)
        for place, column in enumerate(phase.columns):
            one = late_there.get(place)
            if one is None:
                continue
            own = median(world.excess_ms[one.first : one.last + 1, column])
            if own < max(asked.least_ms * asked.share[column], one.over_ms / 2):
                continue  # other phases of it are as much shorter
            if one.over and one.over_ms < own / 2:
                continue  # it was late in another one
            if column not in by_column or own > by_column[column].over_ms:
                by_column[column] = replace(one, column=column, over_ms=own)
    return list(by_column.values())


def _in_phase(
    phase: PhaseExcess, exceeding: Mapping[int, int], asked: _Asked, share: Floats, least: float
) -> dict[int, LateStretch | None]:
    """By place: the stretch that this phase shows, by a mean of its last steps or by a step up."""
    made: dict[int, LateStretch | None] = {}
    dubious = []
    for place, column in enumerate(phase.columns):
        since, after = asked.since.get(column), asked.after(column)
        if place in exceeding or since is not None:
            length = exceeding.get(place, RECENT[0])
            made[place] = stretch_after(after, phase.excess_ms, phase.smooth_ms, phase.noise, place, length, since)
        certainly = since is not None or tells_tails(len(phase.smooth_ms))
        one = made.get(place)
        if place not in exceeding and certainly and (one is None or not one.over):
            dubious.append(place)
    for at, risen in jumps(phase.excess_ms, dubious, [asked.after(phase.columns[place]) for place in dubious]):
        place = dubious[at]
        shares = float(share[place]) * phase.noise.tail**2 * JUMP_OF_A_PHASE
        made[place] = risen.late(place, least, shares, asked.since.get(phase.columns[place]))
    return made


def _exceeding(
    of: World | PhaseExcess, lengths: list[int], means: Floats, least: float, share: Floats, tries: int
) -> Iterator[tuple[int, int]]:
    """Columns whose last steps are late beyond chance, and how many steps show it best.

    lengths, means: `_last_means`. tries: series that are looked at together.
    """
    if not (means > share * least).any():
        return  # whatever chance does
    excess, smooth, noise = of.excess_ms, of.smooth_ms, of.noise
    z = deviations(tries * len(lengths))
    times = means / np.maximum(share * np.maximum(noise.bounds_ms(lengths, z), least), 1e-9)
    columns = np.flatnonzero(times.max(axis=0) > 1.0).tolist()
    usual = of.restless if columns else 0.0
    for column in columns:
        for place in np.argsort(-times[:, column])[: int((times[:, column] > 1.0).sum())].tolist():
            steps, mean = lengths[place], float(means[place, column])
            bound = noise.of_a_rank(column, noisier(excess[-steps:, column], usual)).bound_ms(steps, z)[0]
            asked = share[column] * max(bound, least)
            values = smooth[-steps:, column]
            carries = np.minimum(values - (values.mean() - mean), CARRIES.enter * asked).mean() > asked
            if steps <= SHORT and share[column] == 1:
                carries &= IN_MOST.reached(float((excess[-steps:, column] >= mean / 3).mean()))
            certainly = tells_tails(len(smooth)) or share[column] < 1
            if carries and (certainly or _is_no_burst(excess, smooth, column, steps, columns)):
                yield column, steps
                break


def _is_no_burst(excess: Floats, smooth: Floats, column: int, steps: int, late: list[int]) -> bool:
    """Whether no other column had as much over so many steps before, and the last steps are late as well.

    For windows too short to tell how far rare means stray. late: columns that may be late now.
    """
    mean = float(smooth[-steps:, column].mean())
    if excess[-SMOOTHED:, column].mean() < STAYS * mean:
        return False
    earlier = running_total(np.delete(smooth[: len(smooth) - steps], late, axis=1))
    before = earlier[steps:] - earlier[:-steps]
    return mean > float(before.max(initial=-np.inf)) / steps


def _bursts(world: World, least: float) -> list[tuple[int, int]]:
    """Columns that may have been late for a while, and an index inside that while."""
    sums, steps, ranks = world.total_ms, len(world.total_ms) - 1, len(world.ranks)
    tops = {n: (sums[n :: n // 8] - sums[: -n : n // 8]).max(axis=0) / n for n in BURSTS if n < steps}
    high = [n for n, top in tops.items() if top.max() >= least]
    best: dict[int, tuple[float, int]] = {}
    if high and ranks > 2:
        bounds = world.noise.of_a_rank().bounds_ms(high, deviations(ranks * steps))[:, 0].tolist()
    else:
        bounds = [0.0] * len(high)  # of two ranks both have the change
    for n, bound in zip(high, bounds, strict=True):
        apart, top = n // 8, tops[n]
        for column in np.flatnonzero(top >= max(least, bound)).tolist():
            inside = sums[n::apart, column] - sums[:-n:apart, column]
            middle = int(inside.argmax()) * apart + n // 2 + EDGE
            best[column] = max(best.get(column, (0.0, 0)), (float(top[column]) * n**0.5, middle))
    return [(column, middle) for column, (_, middle) in best.items()]


def _stands_out(world: World, stretch: LateStretch) -> bool:
    """Whether a stretch that is over is beyond chance, of a rank as noisy as it is in that stretch."""
    first, end = max(0, stretch.first - EDGE), stretch.last + 1 - EDGE
    if not SHORTEST.reached(end - first):
        return False
    times = noisier(world.excess_ms[stretch.first : stretch.last + 1, stretch.column], world.restless)
    bound = world.noise.of_a_rank(times=times).bound_ms(end - first, deviations(world.smooth_ms.size))[0]
    mean = float(world.smooth_ms[first:end, stretch.column].mean())
    return bool(mean >= bound)


def _against_the_rest(world: World, now: list[LateStretch], was_late: Mapping[int, int]) -> list[LateStretch]:
    """The same with levels over those ranks that are not late: of several, each makes the others look less late."""
    if len(now) < 2:
        return now
    rest = np.delete(world.own_ms, [stretch.column for stretch in now], axis=1)
    typical = medians(rest)
    better = []
    for stretch in now:
        over = world.own_ms[:, stretch.column] - typical
        length = stretch.last + 1 - stretch.first
        begin = begin_of(over, stretch.last, length, world.noise.per_step(stretch.column), was_late.get(stretch.column))
        level = median(over[begin:])
        if stretch.last + 1 - begin < RECENT[0]:
            begin, level = stretch.first, median(over[stretch.first :])
        better.append(LateStretch(stretch.column, begin, stretch.last, level, begin <= EDGE))
    return better


def _dated(
    world: World, now: list[LateStretch], was_late: Mapping[int, int], over: Mapping[int, int]
) -> list[LateStretch]:
    """The same, begun where the phase that carries a rank's lateness shows it: without the noise of its others."""
    end = len(world) - 1
    dated = {one.column: one for one in now}
    undecided = [one.column for one in now if not is_settled(was_late.get(one.column), end)]
    least = min((dated[column].over_ms for column in undecided), default=0.0) * EXPLAINS.enter / IN_ONE_PHASE.enter
    for phase in in_each_phase(world, undecided, least):
        for place, column in enumerate(phase.columns):
            one, since, after = dated[column], was_late.get(column), over.get(column, -1) + 1
            own, excess = world.excess_ms[after:, column], phase.excess_ms[after:, place]
            rough = max(0, (one.first if since is None else since) - after)
            if median(excess[rough:]) >= EXPLAINS.enter * median(own[rough:]):
                before = None if since is None else since - after
                begin = begin_of(excess, end - after, end + 1 - after - rough, phase.noise.per_step(place), before)
                level = median(own[begin:])
                dated[column] = LateStretch(column, begin, end - after, level, begin <= EDGE).moved(after)
    return list(dated.values())
