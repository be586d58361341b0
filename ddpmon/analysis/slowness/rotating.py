"""Description of a slowdown that moves from rank to rank: no rank is slow for long, but each step waits for one.

Either ranks take turns, each for one or more steps (see `rotation_test`), or the work of each step, its tokens or
samples, is unevenly distributed, so that a different rank has the most work each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.analysis.slowness.detector import Signal
from ddpmon.analysis.slowness.onset import find_onset
from ddpmon.analysis.slowness.past import RunRows
from ddpmon.analysis.slowness.slowdown import CERTAIN_Z, WORTH, Slowdown, gain_without
from ddpmon.analysis.slowness.who import FEWEST_ROWS, REFINED_STEPS, TOGETHER_STEPS
from ddpmon.analysis.statistics.arrays import Floats, Ints, row_medians
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES

MIN_OWN_FAULT_SHARE = 0.75
"""Minimum share of slow steps with which a rank has a fault of its own. Two ranks that take turns are slow in half of
the steps each."""
INVOLVED = 0.5
"""Minimum number of steps in which a rank that takes turns is the slowest, as a multiple of its fair share."""
LATEST_STEPS = 64
"""Number of latest steps in which own times are compared with the work."""


def describe_rotating(rows: RunRows, others: Sequence[Slowdown]) -> tuple[Slowdown | None, list[Slowdown]]:
    """Describe a slowdown in which ranks are slow in turn, beside the other slowdowns.

    Returns:
        The description, or None; it is marked as ended if ranks no longer take turns. The second value has the other
        slowdowns, without slowdowns that only show a rank in its turn.

    """
    world = rows.world
    before = next((one for one in rows.before if one.until is None and one.scope == "rotating"), None)
    signal = next((one for one in rows.signals if one.evidence == "turns"), None)
    turns, goes_on = signal.turns if signal else None, signal is not None and signal.up
    uneven = uneven_work(world.last_steps(LATEST_STEPS), held=before is not None and bool(before.work))
    if not goes_on and uneven is None:
        until = turns.until if before and turns and turns.until >= before.since else int(world.step[-1])
        return before and replace(before, until=until, pattern="stretch"), list(others)
    lead = np.diff(np.partition(world.own_ms, (-2, -1), axis=1)[:, -2:], axis=1)[:, 0]
    since, within = (before.since, before.since_within) if before else _first_step(world, lead, signal)
    turn_steps = turns.turn_steps if turns and goes_on else None
    others = [
        one
        for one in others
        if one.scope == "all"
        or not _is_turn(world, one, since, round_steps=round((turn_steps or 1.0) * len(world.ranks)))
    ]
    own_reason = {rank for one in others if one.scope != "all" and one.until is None for rank in one.ranks}
    slow = [place for place, rank in enumerate(world.ranks) if rank in own_reason]
    columns = np.delete(np.arange(len(world.ranks)), slow)
    if len(columns) < 2:
        return before, others
    own = world.own_ms[:, columns]
    second, slowest = np.partition(own, (-2, -1), axis=1)[:, -2:].T
    begin = min(int(np.searchsorted(world.step, since)), len(world) - 1)
    part, own = world.steps_between(begin, len(world)), own[begin:]
    who = columns[own.argmax(axis=1)]
    over = part.phases_ms[np.arange(len(part)), who] - row_medians(part.phases_ms[:, columns])
    phases = dict(zip(OWN_PHASES, over.mean(axis=0).tolist(), strict=True))
    # Without the slowest rank, a step would take as long as its second-slowest rank.
    next_ms = np.maximum(second[begin:], part.own_ms[:, slow].max(axis=1, initial=0.0))
    lost = np.maximum(slowest[begin:] - next_ms, 0.0)
    explained = uneven.lost_ms(part) if uneven else np.zeros(len(part))
    is_work = bool(explained.sum() >= EXPLAINS.enter * lost.sum()) or not goes_on
    lost = explained if is_work else lost
    # Steps before the window are assumed to have cost as much as those in the window.
    cost = float(lost.mean()) * max(len(part), int(part.step[-1]) - since + 1)
    if before and before.since < world.step[0]:
        cost = before.cost_ms + float(lost[part.step > before.as_of].sum())
    total = float(part.step_ms.sum())
    gain = gain_without(float(lost.sum()), total)
    described = Slowdown(
        ranks=_involved(world, who, len(columns)),
        scope="rotating",
        phases_ms=phases,
        pattern="lasting",
        since=since,
        since_within=within,
        every=None if is_work else turn_steps,
        excess_ms=float(over.sum(axis=1).mean()),
        cost_ms=cost,
        as_of=int(world.step[-1]),
        gain=gain,
        gain_alone=gain,
        work=uneven.unit if uneven and is_work else "",
    )
    return described, others


def _is_turn(world: World, one: Slowdown, since: int, round_steps: int) -> bool:
    """Return whether ranks are slow only in their turn, and not in most steps of the latest round of turns.

    Args:
        world: The window.
        one: The slowdown of these ranks.
        since: First step of the rotation.
        round_steps: Length of a round of turns, in steps.

    """
    columns = [world.ranks.index(rank) for rank in one.ranks]
    latest = len(world) - max(FEWEST_ROWS, round_steps)
    begin = min(int(np.searchsorted(world.step, max(one.since, since))), latest)
    part = world.steps_between(begin, len(world))
    over = part.own_ms[:, columns] - row_medians(np.delete(part.own_ms, columns, axis=1))[:, None]
    mostly_ms = float(np.median(np.quantile(over, 1 - MIN_OWN_FAULT_SHARE, axis=0)))
    return not WORTH.is_reached(gain_without(mostly_ms, float(part.step_ms.mean())))


def _first_step(world: World, lead: Floats, signal: Signal | None) -> tuple[int, tuple[int, int]]:
    """Return the first step and its interval: the signal's step, refined if the steps around it are in the window."""
    if signal is None or not signal.up:
        place, signal = len(world), None
    else:
        place = int(np.searchsorted(world.step, signal.step))
    around = slice(max(0, place - REFINED_STEPS), place + REFINED_STEPS)
    steps = world.step[around]
    if signal is not None and (signal.step < steps[0] or len(steps) < 2 * FEWEST_ROWS):
        return signal.step, (signal.step, signal.step)
    found = find_onset(lead[around], may_be_constant=around.start == 0)
    step, (low, high) = found.in_steps(steps)
    if signal is None or abs(step - signal.step) <= TOGETHER_STEPS:
        return step, (low, high)
    return signal.step, (min(low, signal.step), max(high, signal.step))


def _involved(world: World, who: Ints, among: int) -> tuple[int, ...]:
    """Return the ranks that are the slowest often enough to count as taking turns (see INVOLVED)."""
    counts = np.bincount(who, minlength=len(world.ranks))
    return tuple(world.ranks[place] for place in np.flatnonzero(counts * among >= INVOLVED * len(who)).tolist())


@dataclass(frozen=True)
class Uneven:
    """Work that is unevenly distributed over the ranks of each step."""

    unit: str
    """"tokens" or "samples"."""
    item_ms: float
    """Own time in ms that each additional token or sample takes."""

    def lost_ms(self, part: World) -> Floats:
        """Return the time [S] in ms by which each step would be shorter if its work were spread evenly."""
        counts = part.tokens if self.unit == "tokens" else part.samples
        return _lost_ms(part.own_ms, counts, self.item_ms)


def uneven_work(part: World, *, held: bool) -> Uneven | None:
    """Return the uneven work that explains differences of own time within steps (least squares); None if it costs
    little.

    Lasting differences between ranks are subtracted from own times and work: a rank with more work in all steps has a
    slowdown of its own.

    Args:
        part: The latest steps.
        held: True if uneven work was found at the last judgement. It is dropped only if its cost is certainly too low.

    """
    own, certain = part.own_ms, CERTAIN_Z
    ranks, over = own.shape[1], _centred(own)
    if ranks < 2:
        return None
    for unit, each in (("tokens", part.tokens), ("samples", part.samples)):
        counts = each.astype(np.float64)
        more = _centred(counts)
        square = float(np.square(more).sum())
        if (counts <= 0).any() or square <= 1e-9 * float(np.square(counts).sum()):
            continue
        item_ms = float((more * over).sum()) / square
        # Robust standard error for unequal variances (White, 1980); centring costs one degree of freedom per step.
        strays = float(np.square(more * (over - item_ms * more)).sum()) * ranks / (ranks - 1)
        error_ms = strays**0.5 / square
        least = item_ms + certain * error_ms if held else item_ms
        lost, total = float(_lost_ms(own, counts, least).sum()), float(part.step_ms.sum())
        if (held or item_ms >= certain * error_ms) and WORTH.is_reached(gain_without(lost, total)):
            return Uneven(unit, max(item_ms, 0.0))
    return None


def _centred(values: Floats) -> Floats:
    """Return values minus the mean of their step, and of their rank, [S, R]."""
    within = values - values.mean(axis=1, keepdims=True)
    centred: Floats = within - within.mean(axis=0)
    return centred


def _lost_ms(own: Floats, counts: Floats | Ints, item_ms: float) -> Floats:
    even = own - item_ms * (counts - counts.mean(axis=1, keepdims=True))
    lost: Floats = own.max(axis=1) - even.max(axis=1)
    return lost
