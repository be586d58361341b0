"""Description of a slowdown of some ranks compared with the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.analysis.slowness import who
from ddpmon.analysis.slowness.bursts import begins_as_noise, hidden_since
from ddpmon.analysis.slowness.excess import excess_over
from ddpmon.analysis.slowness.onset import find_onset
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import EVIDENCE, PatternName, Slowdown, gain_without
from ddpmon.analysis.slowness.stretches import (
    AT_PEERS,
    RECENT_STRETCHES,
    Recurrence,
    Stretches,
    recurrence,
    steps_apart,
    stretches,
)
from ddpmon.analysis.statistics.arrays import Floats, Ints, column_medians, series_median
from ddpmon.analysis.steps import what_if
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES

SETTLED_STEPS = 150
"""Number of steps after which the estimate of the first slow step is final, because more steps would not improve it."""
SEGMENT_ROWS = 300
"""Number of rows before and after a first slow step from which it is estimated."""
LATEST_STEPS = 50
"""Number of latest slow steps from which the cost of a slow step is estimated."""
PHASE_STEPS = 16
"""Number of steps at each end of a slowdown whose slow phases are compared, to see whether the phase has changed."""


@dataclass(frozen=True)
class _Span:
    """The rows of a slowdown, from `begin` to before `end`, with its first and last step and its pattern."""

    begin: int
    end: int
    since: int
    within: tuple[int, int]
    until: int | None
    pattern: PatternName
    every: float | None = None


class SlowGroup:
    """A group of slow ranks, to be described by their excess over their peers."""

    def __init__(self, rows: RunRows, group: who.Group, peers: Sequence[int]) -> None:
        self.rows, self.group, self.before = rows, group, group.before
        self.excess = excess_over(rows, group.columns, peers)
        self.start = rows.index(group.first)
        """Row near which the ranks became slow."""
        self.series = self.excess.series(self.start, group.before.phase if group.before else None)
        self.others = sorted({*range(len(rows.world.ranks))}.difference(peers, group.columns))
        """Columns of other slow ranks."""

    def slowdowns(self, ended: Sequence[Slowdown]) -> list[Slowdown]:
        """Return the present slowdown, and an earlier slowdown that has ended since the last judgement.

        The slowdowns in `ended` may be earlier stretches of a recurring slowdown.
        """
        rows, before, series = self.rows, self.before, self.series
        level_ms = before.excess_ms if before and before.share == 1 else None
        found, again = self._rhythm_of_a_phase() or (stretches(rows, series, self.start, level_ms), None)
        ranks = {rows.world.ranks[place] for place in self.group.columns}
        known = [one for one in ended if ranks.issuperset(one.ranks) and one.until is not None]
        past = {(one.since, one.until) for one in known if one.until is not None and one.share == 1}
        found = found.with_known(rows, sorted(past.union(before.stretches if before else ())))
        spans = found.spans
        if not spans:
            return [before] if before else []
        again = again or recurrence(rows, found, held=bool(before and before.every))
        if again is not None:
            chosen = [self._recurring(found, again, known)]
        else:
            chosen = [part for place in self._places(spans) for part in self._by_phase(self._span(spans, place))]
        latest = chosen[-1]
        goes_on = latest.until is None and not found.single
        hidden = hidden_since(rows, series, latest.begin, before) if goes_on else None
        if before is None and (
            hidden is not None or (again is None and begins_as_noise(rows, series[0], latest.begin, latest.end))
        ):
            return []
        if hidden is not None:
            chosen[-1] = replace(latest, end=hidden)
        *described, last = (self._described(span, found.counts) for span in chosen)
        comes_again = again is not None and not found.single
        ended_steps = [part for part in found.steps(rows) if comes_again and part[1] < rows.world.step[-1]]
        hidden_step = None if hidden is None else int(rows.first[hidden])
        return [*described, replace(last, stretches=tuple(ended_steps[-RECENT_STRETCHES:]), hidden_since=hidden_step)]

    def _recurring(self, found: Stretches, again: Recurrence, known: Sequence[Slowdown]) -> _Span:
        """Return the rows from the first stretch of a recurring slowdown on; `known` are ended slowdowns."""
        rows, (begin, end) = self.rows, (again.spans[0][0], again.spans[-1][1])
        since = int(rows.first[begin])
        share = float(found.counts[begin:end].sum() / rows.steps[begin:end].sum())
        # If slow steps are irregular, the cause may have begun some steps before the first slow step.
        unsure = int(rows.steps[max(0, begin - 1)]) - 1
        earliest = since - (round(3 / share) if again.pattern == "irregular" and found.single else unsure)
        within = max(int(rows.first[0]), earliest), since + unsure
        for one in ([self.before] if self.before else []) + [*known]:
            if one.since <= within[1] and (one is self.before or one.since >= within[0]):
                since, within = one.since, one.since_within
                break
        until = rows.last_step(end - 1) if again.has_ended else None
        # The first slow steps may not show in the means of past blocks.
        begin = min(begin, rows.index(since))
        return _Span(begin, end if again.has_ended else len(rows), since, within, until, again.pattern, again.every)

    def _rhythm_of_a_phase(self) -> tuple[Stretches, Recurrence] | None:
        """Return the slow steps of the first phase that is slow at regular intervals, and their rhythm; None if there
        is none.

        Longer and rarer pauses in another phase may hide the rhythm in own time.
        """
        rows, excess, start, before = self.rows, self.excess, self.start, self.before
        for phase in excess.phases_ms[start:].mean(axis=0).argsort()[::-1].tolist():
            values, noise = excess.phases_ms[:, phase], excess.noise_ms[:, phase]
            found = steps_apart(rows, values, noise, start, beside_pauses=True)
            held = before is not None and before.every is not None and before.phase == OWN_PHASES[phase]
            again = None if found is None else recurrence(rows, found, held=held)
            if found is None or again is None or again.every is None:
                continue
            usual = np.flatnonzero(~found.slow)
            own = excess.own_ms[usual[usual >= start]]
            # The ranks must be as fast as their peers in the other steps.
            if AT_PEERS.is_reached(series_median(own) / max(float(excess.own_ms[start:].mean()), 1e-9)):
                return found, again
        return None

    def _places(self, spans: list[tuple[int, int]]) -> list[int]:
        """Return the indices of the spans to describe: the one that the last judgement described, and the latest."""
        last = len(spans) - 1
        if self.before is None:
            return [last]
        at = self.rows.index(self.before.since)
        held = next((place for place, (begin, end) in enumerate(spans) if begin - who.TOGETHER_STEPS <= at < end), last)
        return sorted({held, last})

    def _span(self, spans: list[tuple[int, int]], place: int) -> _Span:
        """Return the first and the last step of a span of slow rows, with its pattern."""
        rows, before = self.rows, self.before
        begin, end = spans[place]
        lower = spans[place - 1][1] if place else 0
        upper = spans[place + 1][0] if place + 1 < len(spans) else len(rows)
        since = int(rows.first[begin])
        within = since, since
        pattern: PatternName = "lasting" if end == len(rows) else "stretch"
        age = int(rows.world.step[-1]) - (before.since if before else 0)
        kept = before if before and rows.index(before.since) in range(begin - SEGMENT_ROWS, end) else None
        if kept and (kept.since == rows.first[0] or age > SETTLED_STEPS):
            since, within, begin = kept.since, kept.since_within, rows.index(kept.since)
            pattern = kept.pattern if kept.pattern == "ramp" else pattern
        elif begin > lower:
            first, series, size = self._uniform(begin, lower, end)
            if len(series) >= who.FEWEST_ROWS:
                found = find_onset(series, may_be_constant=lower == 0)
                since, (low, high) = found.in_steps(first)
                within = low - size + 1, high + size - 1  # The beginning may be any step of a block.
                pattern = "ramp" if found.is_ramp else pattern
                begin = rows.index(since)
        until = None
        if end < len(rows):
            # Search for the last slow step only near the end of the span, because the excess may also decrease earlier.
            first, series, size = self._uniform(end - 1, max(begin, end - who.COMPARED_STEPS), upper)
            last = len(series) - 1 - find_onset(series[::-1], may_be_constant=False).index if len(series) > 3 else 0
            until = int(first[last]) + size - 1 if len(series) > 3 else rows.last_step(end - 1)
            until = max(since, until)
            end = rows.index(until) + 1
        return _Span(begin, end, since, within, until, pattern)

    def _uniform(self, near: int, lower: int, upper: int) -> tuple[Floats, Floats, int]:
        """Return means over blocks of equal size around a row: the first step of each block, the means, and the size in
        steps.
        """
        rows, values = self.rows, self.series[0]
        size = int(rows.steps[max(lower, near - who.FEWEST_ROWS)])
        lower = max(lower, near - SEGMENT_ROWS, int(np.argmax(rows.steps <= size)))
        upper = int(np.searchsorted(np.cumsum(rows.steps[near:upper]), SEGMENT_ROWS * size)) + near
        upper = min(upper + 1, len(rows)) if upper < len(rows) else upper
        steps = rows.steps[lower:upper]
        block = (np.cumsum(steps) - 1) // size
        starts = np.flatnonzero(np.diff(block, prepend=-1))
        means = np.add.reduceat(values[lower:upper] * steps, starts) / np.add.reduceat(steps, starts)
        return rows.first[lower:upper][starts].astype(np.float64), means, size

    def _by_phase(self, span: _Span) -> list[_Span]:
        """Split a span at the step at which another phase became the slow one."""
        rows, phases_ms = self.rows, self.excess.phases_ms
        end, begin = span.end, max(span.begin, span.end - SEGMENT_ROWS, len(rows.blocks))
        if end - begin < 2 * PHASE_STEPS:
            return [span]
        now = int(column_medians(phases_ms[end - PHASE_STEPS : end]).argmax())
        was = int(column_medians(phases_ms[begin : begin + PHASE_STEPS]).argmax())
        if now == was:
            return [span]
        found = find_onset(phases_ms[begin:end, now] - phases_ms[begin:end, was], may_be_constant=False)
        both = [
            column_medians(phases_ms[part])
            for part in (slice(begin, begin + found.index), slice(begin + found.index, end))
        ]
        short = not who.FEWEST_ROWS <= found.index <= end - begin - who.FEWEST_ROWS
        # Require that one phase rises while the other falls. Noise may only add time to a phase for a while.
        fell, rose = both[0][was] - both[1][was], both[1][now] - both[0][now]
        if short or found.evidence < EVIDENCE or fell < both[0][was] / 2 or rose < both[1][now] / 2:
            return [span]
        at = begin + found.index
        since, within = found.in_steps(rows.first[begin:end])
        old = replace(
            span, end=at, until=rows.last_step(at - 1), pattern="stretch" if span.pattern == "lasting" else span.pattern
        )
        return [old, replace(span, begin=at, since=since, within=within)]

    def _described(self, span: _Span, counts: Floats) -> Slowdown:
        """Return the description of a slowdown, with its size, phases and cost; `counts`, [N]: slow steps by row."""
        rows, excess, group = self.rows, self.excess, self.group
        old, before = len(rows.blocks), self.before if self.before and self.before.since == span.since else None
        slow = np.zeros(len(rows))
        comes_again = span.every or span.pattern == "irregular"
        slow[span.begin : span.end] = (counts if comes_again else rows.steps)[span.begin : span.end]
        window = np.flatnonzero(slow[old:])
        shown = window + old if len(window) else np.flatnonzero(slow)
        phases, size = column_medians(excess.phases_ms[shown]), series_median(excess.own_ms[shown])
        total, count = float((rows.steps * rows.length_ms)[span.begin : span.end].sum()), float(slow.sum())
        latest = window
        if before and span.begin < old:
            latest = window[-max(LATEST_STEPS, int((rows.first[window + old] > before.as_of).sum())) :]
        # Fixing one of several equally slow ranks gains nothing, so each of them is assigned their joint cost.
        loss, alone = _loss_ms(rows.world, latest, group.columns, self.others) if len(latest) else (size, size)
        if before and span.begin < old:
            # Add to the cost so far: each new slow step costs as much as the latest slow steps on average.
            is_new = rows.first > before.as_of
            added = float(slow[is_new].sum())
            cost = before.cost_ms + added * loss
            if comes_again and before.share < 1:
                count = before.share * float(rows.steps[span.begin :][~is_new[span.begin :]].sum()) + added
        else:
            cost = count * loss
        # The gain is that of fixing only these ranks, so other slow ranks reduce the gain.
        gain = gain_without(cost * (alone / loss if loss else 1.0), total)
        return Slowdown(
            ranks=tuple(rows.world.ranks[place] for place in group.columns),
            scope=who.scope_of_columns(group.columns, rows.world.ranks, rows.hosts),
            phases_ms=dict(zip(OWN_PHASES, phases.tolist(), strict=True)),
            pattern=span.pattern,
            since=span.since,
            since_within=span.within,
            began_us=rows.begin_us(span.within),
            until=span.until,
            every=span.every,
            share=count / float(rows.steps[span.begin : span.end].sum()),
            excess_ms=size,
            cost_ms=cost,
            as_of=int(rows.world.step[-1]),
            changed=group.changed,
            gain=gain,
            gain_alone=gain,
        )


def _loss_ms(world: World, steps: Ints, columns: Sequence[int], others: Sequence[int]) -> tuple[float, float]:
    """Return the mean time in ms that steps of the window would save without the excess of these ranks.

    Returns:
        The time saved if the other slow ranks are already fixed, and the time saved if they stay slow. The first value
        is at least the second.

    """
    if steps[-1] - steps[0] + 1 == len(steps):
        part = world.steps_between(int(steps[0]), int(steps[-1]) + 1)
    else:  # Select only the arrays that the simulation reads.
        names = ("step", "end_us", "length_ms", "own_ms")
        part = replace(world, **{name: getattr(world, name)[steps] for name in names})

    def without(some: Sequence[int]) -> float:
        return 1 / max(1.0, what_if.gain_if_like_peers(part, some, seen=world))

    mean, alone = float(part.step_ms.mean()), 1 - without(columns)
    beside = without(others) - without(sorted({*columns, *others})) if others else alone
    return mean * max(alone, beside), mean * alone
