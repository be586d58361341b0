"""Detects the slowdowns of a run in its steps, and describes them at each judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpmon.analysis.slowness import who
from ddpmon.analysis.slowness.all_ranks import describe_all
from ddpmon.analysis.slowness.bursts import may_be_burst
from ddpmon.analysis.slowness.detector import Detector, Signal
from ddpmon.analysis.slowness.past import Past, RunRows
from ddpmon.analysis.slowness.rotating import describe_rotating
from ddpmon.analysis.slowness.slowdown import WORTH, Slowdown, gain_without
from ddpmon.analysis.slowness.some_ranks import SlowGroup
from ddpmon.analysis.statistics.arrays import series_median
from ddpmon.analysis.steps import what_if
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold

WORTH_IN_LARGE = Threshold(
    1.005,
    of="time since a slowdown began, divided by the time that the same steps would take without it, in runs of 64 "
    "ranks or more (see `WORTH` in slowdown.py)",
    why="With hundreds of GPUs, half a percent of the run's time is worth more than one GPU.",
)
KEPT_ENDED = 32
"""Maximum number of ended slowdowns to keep. If a slowdown recurs, the new description includes the ended one."""
LARGE_WORLD_RANKS = 64
"""Number of ranks from which on WORTH_IN_LARGE applies instead of WORTH."""


class Engine:
    """Detects and describes the slowdowns of a run, whose ranks may change."""

    def __init__(self) -> None:
        self._detector = Detector(())
        self._past = Past()
        self._slowdowns: Sequence[Slowdown] = ()
        """The result of the last judgement."""
        self._has_new = False
        """True if steps were appended after the last judgement."""

    def append(self, part: World) -> None:
        """Append further steps. If their ranks differ from the earlier ones, start anew."""
        if part.ranks != self._detector.ranks:
            self._detector, self._past, self._slowdowns = Detector(part.ranks), Past(), ()
        self._detector.append(part)
        self._past.append(part)
        self._has_new = True

    def judge(self, world: World | None, hosts: Mapping[int, str]) -> Sequence[Slowdown]:
        """Return descriptions of the slowdowns so far, lasting ones first.

        Args:
            world: The latest steps of all ranks; None if there are none.
            hosts: Host of each rank.

        """
        if world is None or world.ranks != self._detector.ranks:
            return ()
        if self._has_new:  # The hub calls this twice a second, even if no step has finished since.
            self._slowdowns = describe_slowdowns(
                world, self._past, self._detector.recent_signals(), hosts, self._slowdowns
            )
            self._has_new = False
        return self._slowdowns


def describe_slowdowns(
    world: World, past: Past, signals: Sequence[Signal], hosts: Mapping[int, str], before: Sequence[Slowdown]
) -> list[Slowdown]:
    """Return the current slowdowns of a run: lasting ones first, then ended ones, the costliest of each first.

    Args:
        world: The window.
        past: The steps before the window, as means of blocks.
        signals: The changes that the detector is certain of.
        hosts: Host of each rank.
        before: The result of the last judgement.

    """
    if len(world) < 2 * who.FEWEST_ROWS:
        return list(before)
    rows = RunRows(world, past, signals, hosts, before)
    groups = who.slow_groups(rows)
    everyone = _of_all(rows, groups)
    # Slowdowns that have ended: a recurrence may continue the latest ones.
    ended = sorted((one for one in before if one.until is not None), key=lambda one: -one.since)[:KEPT_ENDED]
    while True:
        peers = who.peer_columns(rows, groups).tolist()
        found = [one for group in groups if peers for one in SlowGroup(rows, group, peers).slowdowns(ended)]
        found += [everyone] if everyone else []
        rotating, found = describe_rotating(rows, found)
        told = _worth_telling(rows, found + ([rotating] if rotating else []))
        # Ranks whose slowdown is too small to report count as peers. Compare the other groups with these peers again.
        untold = [one for one in groups if one.before is None and not _is_told(rows, one, told)]
        if not untold:
            break
        groups = [one for one in groups if one not in untold]
    told += [one for one in ended if not any(_continues(one, other) for other in told)]
    return sorted(told, key=lambda one: (one.until is not None, -one.cost_ms))


def _is_told(rows: RunRows, group: who.Group, told: Sequence[Slowdown]) -> bool:
    """Return whether one of the slowdowns in `told` includes all ranks of a group."""
    ranks = {rows.world.ranks[column] for column in group.columns}
    return any(one.is_of_ranks and ranks.issubset(one.ranks) for one in told)


def _of_all(rows: RunRows, groups: Sequence[who.Group]) -> Slowdown | None:
    """Return the slowdown of all ranks compared with their own past; None if there is none."""
    most = [group.first for group in groups if 2 * len(group.columns) >= len(rows.world.ranks)]
    known = [one for one in rows.before if one.scope == "all"]
    held = next((one for one in known if one.until is None), None)
    if held is not None and any(abs(first - held.since) <= who.TOGETHER_STEPS for first in most):
        held = None  # The groups show that most ranks became slow, not all.
    up = [one for one in rows.signals if one.rank is None and one.up and one.evidence != "turns"]
    new = [one for one in up if all(one.step > (old.until or 0) for old in known)]
    peers = who.peer_columns(rows, groups).tolist()
    if not peers or (held is None and not new):
        return None
    if held is not None:
        return describe_all(rows, held.since, held.phase, held, peers)
    plainest = max(new, key=lambda signal: signal.z)
    return describe_all(rows, plainest.step, plainest.series, None, peers)


def _continues(old: Slowdown, new: Slowdown) -> bool:
    """Return whether a new description includes an earlier slowdown."""
    same = set(old.ranks) <= set(new.ranks) or new.scope == "rotating"
    return same and old.since >= new.since and new.scope == old.scope


def _goes_on_as(old: Slowdown, new: Slowdown) -> bool:
    """Return whether both describe the same slowdown. A slowdown that recurs after its end is a new one."""
    over = old.until is not None and (new.until is None or old.since != new.since)
    return not over and (_continues(old, new) or _continues(new, old))


def _worth_telling(rows: RunRows, found: Sequence[Slowdown]) -> list[Slowdown]:
    """Return the slowdowns that cost enough to be reported. Present slowdowns of ranks are judged by their cost
    together.

    A reported slowdown stays until there is evidence that it has ended. A slowdown that ended before it was reported is
    judged by its cost as a share of the whole run.
    """
    world, before = rows.world, rows.before
    threshold = WORTH_IN_LARGE if len(world.ranks) >= LARGE_WORLD_RANKS else WORTH
    held = [
        one
        for one in found
        if any(_goes_on_as(other, one) for other in before)
        # An ended slowdown must cost enough by itself if another slowdown of the same ranks still lasts.
        and (one.until is None or not any(other.until is None and other.ranks == one.ranks for other in found))
    ]
    present = [one for one in found if one.until is None and one.is_of_ranks]
    # Fixing only one of two equally slow ranks gains nothing, so the joint gain of all present slowdowns counts too.
    took_ms = float((rows.length_ms * rows.steps).sum())
    of_run = {id(one): gain_without(one.cost_ms, took_ms) for one in (*found, *before)}
    costs = {id(one): one.gain if one.until is None else of_run[id(one)] for one in found}
    if len(present) > 1:
        latest = max(one.since for one in present)
        whole = _gain(world, present, latest)
        for one in present:
            rest = [other for other in present if other is not one]
            costs[id(one)] = max(one.gain_alone, whole / _gain(world, rest, latest))
    # Slowdowns that cost enough are faults: they must not count as bursts of noise in the other ranks.
    faults = [
        one
        for one in (*found, *before)
        if one.is_of_ranks
        and threshold.is_reached(
            of_run[id(one)] if one.until is not None else costs.get(id(one), one.gain), held=one in before
        )
    ]
    # A rank whose own excess is small is not reported, however large the joint cost is.
    least_ms = (threshold.enter - 1) * series_median(rows.length_ms)
    told = [
        one
        for one in found
        if one in held
        or (
            threshold.is_reached(costs[id(one)])
            and not (one.is_of_ranks and (one.share * one.excess_ms < least_ms or may_be_burst(rows, one, faults)))
        )
    ]
    together = [one for one in told if one in present]
    if len(together) < 2:
        return told
    joint = _gain(world, together, max(one.since for one in together))
    return [replace(one, gain=max(joint, one.gain_alone)) if one in together else one for one in told]


def _gain(world: World, together: Sequence[Slowdown], since: int) -> float:
    """Return the time since a step divided by the time that the same steps would take without these slowdowns."""
    columns = sorted({world.ranks.index(rank) for one in together for rank in one.ranks})
    begin = int((world.step < since).sum())
    if len(columns) == len(world.ranks) or len(world) - begin < who.FEWEST_ROWS:
        return 1.0
    return max(1.0, what_if.gain_if_like_peers(world.steps_between(begin, len(world)), columns, seen=world))
