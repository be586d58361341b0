"""Describe what holds all ranks back: all became slower than they were, or another rank is slow each time."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ddpmon.analysis.slowness.excess import PEERS, own_change
from ddpmon.analysis.slowness.onset import onset
from ddpmon.analysis.slowness.past import Rows
from ddpmon.analysis.slowness.slowdown import EVIDENCE, Slowdown
from ddpmon.analysis.slowness.stretches import stretches
from ddpmon.analysis.slowness.who import FEWEST_ROWS
from ddpmon.analysis.statistics.arrays import Floats, median, medians
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import OWN_PHASES

STANDS_APART = Threshold(
    4.0,
    of="times twice the distance of the second rank from the third that the slowest is from the second, as medians",
    why="1 for exponential tails, whatever their scale (Sukhatme, 1937); 1.4 for Pareto tails with exponent 1.5.",
    keeps=0.7,
)
ONE_RANKS = Threshold(
    0.6,
    of="share of steps in which the same rank is the slowest",
    why="Above it the slowdown is that rank's.",
    below=True,
)
LATEST_STEPS = 64
"""Latest steps that are looked at before all others."""
SETTLED_STEPS = 150
"""Steps after which the first step stays as described."""


def describe_all(
    rows: Rows, first: int, series: str, before: Slowdown | None, columns: Sequence[int]
) -> Slowdown | None:
    """Describe a slowdown of all ranks against their own past.

    Args:
        rows: The run.
        first: Number of its first step, roughly.
        series: "own", a phase or "transfer".
        before: Its description of last time.
        columns: The ranks that are not slow against the others: a slowdown of all is theirs as well.

    """
    every = np.column_stack([medians(rows.phases_ms(columns[:: -(-len(columns) // PEERS)])), rows.transfer_ms])
    values = every[:, :-1].sum(axis=1) if series == "own" else every[:, (*OWN_PHASES, "transfer").index(series)]
    start = rows.index(first)
    if start < FEWEST_ROWS or start > len(rows) - FEWEST_ROWS:
        return before
    over = own_change(rows, values, start)
    spans = stretches(rows, over, start, before.phases_ms.get(series, before.excess_ms) if before else None).spans
    if not spans:
        return before
    begin, end = spans[-1]
    since, within, is_ramp, evidence = _first_step(rows, over[0][:end], begin)
    if before is None and not EVIDENCE.reached(evidence):
        return None
    if before and int(rows.world.step[-1]) - before.since > SETTLED_STEPS:
        since, within, is_ramp = before.since, before.since_within, before.pattern == "ramp"
    begin = max(1, rows.index(since))
    change = every - medians(every[:begin].T)
    shown = slice(max(begin, min(len(rows.blocks), end - 1)), end)
    phases = medians(change[shown].T)
    steps, total = rows.steps[begin:end], float((rows.length_ms * rows.steps)[begin:end].sum())
    # The slowest rank sets the pace, not the typical one: a step became longer by more than the median rank did.
    length = rows.length_ms - float(np.average(rows.length_ms[:begin], weights=rows.steps[:begin]))
    longer = length if len(columns) == len(rows.world.ranks) else change.sum(axis=1)
    cost = max(0.0, float((longer[begin:end] * steps).sum()))
    names = (*OWN_PHASES, "transfer")
    gain = total / max(total - cost, 1e-9)
    return Slowdown(
        ranks=rows.world.ranks,
        scope="all",
        phases_ms=dict(zip(names, phases.tolist(), strict=True)),
        phase=names[int(phases.argmax())],
        pattern="ramp" if is_ramp else "lasting" if end == len(rows) else "stretch",
        since=since,
        since_within=within,
        until=None if end == len(rows) else rows.last_step(end - 1),
        every=None,
        share=1.0,
        excess_ms=float(phases.sum()),
        cost_ms=cost,
        as_of=int(rows.world.step[-1]),
        gain=gain,
        gain_alone=gain,
        changed="these",
        increase=float(phases.max() / max(median(every[:begin, int(phases.argmax())]), 1e-9)),
    )


def _first_step(rows: Rows, values: Floats, begin: int) -> tuple[int, tuple[int, int], bool, float]:
    """Find the first step of a rise near a row, from the steps of the window if it is in there, and its evidence."""
    lower = len(rows.blocks) if begin > len(rows.blocks) + FEWEST_ROWS else 0
    found = onset(values[lower:], may_be_constant=False)
    low, high = (lower + index for index in found.within)
    within = int(rows.first[low]), rows.last_step(high)
    return int(rows.first[lower + found.index]), within, found.is_ramp, found.evidence


def describe_rotating(world: World, without: Collection[int], before: Slowdown | None) -> Slowdown | None:
    """Describe that in most steps one rank stands apart from all others, but not always the same.

    Args:
        world: The window.
        without: Columns with a slowdown of their own.
        before: Its description of last time.

    """
    columns = [place for place in range(len(world.ranks)) if place not in set(without)]
    if len(columns) < 3 or len(world) < FEWEST_ROWS * 4:
        return None
    if before is None and len(world) > 2 * LATEST_STEPS:
        # Cheap, and nearly always enough: it is not so now.
        third, second, slowest = np.partition(world.own_ms[-LATEST_STEPS:, columns], (-3, -2, -1), axis=1)[:, -3:].T
        if not STANDS_APART.reached(median(slowest - second) / max(2 * median(second - third), 1e-9)):
            return None
    own = world.own_ms[:, columns]
    third, second, slowest = np.partition(own, (-3, -2, -1), axis=1)[:, -3:].T
    lead = slowest - second
    begin = 0 if before is None else min(int(np.searchsorted(world.step, before.since)), len(world) - 1)
    found = onset(lead, may_be_constant=True) if before is None else None
    begin = found.index if found else begin
    apart = median(lead[begin:]) / max(2 * median((second - third)[begin:]), 1e-9)
    counts = np.bincount(own[begin:].argmax(axis=1), minlength=len(columns))
    enough = len(world) - begin >= FEWEST_ROWS * 4
    if (
        not enough
        or not STANDS_APART.reached(apart, held=before is not None)
        or not ONE_RANKS.reached(counts.max() / counts.sum())
    ):
        return None
    part = world.between(begin, len(world))
    slow = np.array(columns)[own[begin:].argmax(axis=1)]
    phases = part.phases_ms[np.arange(len(part)), slow] - medians(part.phases_ms[:, columns])
    names = dict(zip(OWN_PHASES, medians(phases.T).tolist(), strict=True))
    since, within = (before.since, before.since_within) if before else (int(part.step[0]), (0, 0))
    if found:
        within = int(world.step[found.within[0]]), int(world.step[found.within[1]])
    saved, total = float(lead[begin:].sum()), float(part.step_ms.sum())
    gain = total / max(total - saved, 1e-9)
    return Slowdown(
        ranks=tuple(world.ranks[place] for place in np.flatnonzero(counts).tolist()),
        scope="rotating",
        phases_ms=names,
        phase=max(names, key=lambda name: names[name]),
        pattern="lasting",
        since=since,
        since_within=within,
        until=None,
        every=None,
        share=1.0,
        excess_ms=median(lead[begin:]),
        cost_ms=saved + (before.cost_ms if before and before.since < world.step[0] else 0.0),
        as_of=int(world.step[-1]),
        gain=gain,
        gain_alone=gain,
        changed="these",
    )
