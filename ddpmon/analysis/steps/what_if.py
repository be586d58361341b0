"""Simulated speedup of a run if some ranks were no slower than their peers.

A step is simulated as the largest own time in it plus the rest of the step (the transfer). Without a change, the
result is the real length of the step. Two things keep the estimated gain from being too high:

- A fixed rank gets its peers' own time including their random variation. With a constant time, it would never be last.
- Transfer differs between ranks that arrive together and ranks that wait for a late rank. The lead is the time by which
  the last rank exceeds a typical one. The dependence of transfer on the lead is that of the observed steps, not
  extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.statistics.arrays import Floats, Ints, column_medians, row_medians, series_median
from ddpmon.analysis.statistics.excess import over_peers, some_of
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES

VARIATION_DRAWS = 8
"""Number of simulations of a fixed rank, each with the random variation of a peer. Their results are averaged."""
PART_STEPS = 25
"""Number of steps from which the transfer at a lead is estimated. Its standard error is a quarter of a single step's
(1.25 / sqrt(25))."""
MAX_LEADS = 6
"""Maximum number of leads at which transfer is estimated. Between these leads, transfer is interpolated linearly."""


def gain_if_like_peers(
    world: World, columns: int | Sequence[int], phase: str | None = None, seen: World | None = None
) -> float:
    """Return the speedup of the window if the own time of some ranks were like that of their peers.

    Args:
        world: The window.
        columns: Columns of the ranks whose own time is replaced.
        phase: The phase whose time is replaced; None: all of own time.
        seen: Steps from which the dependence of transfer on the lead is estimated; None: those of the window.

    Returns:
        1.0 where there is no gain.

    """
    fixed = [columns] if isinstance(columns, int) else list(columns)
    peers = np.delete(np.arange(len(world.ranks)), fixed)
    if not len(peers) or not fixed:
        return 1.0
    largest, typical = _peers_own(world, peers)
    slowest = _slowest_with(world, fixed, peers, largest, typical, phase)
    seen = world if seen is None else seen
    seen_typical = typical if seen is world else _peers_own(seen, peers)[1]
    known = transfer_after(seen.slowest_ms - seen_typical, seen.step_ms - seen.slowest_ms)
    # Between observed leads, the transfer is interpolated; beyond them, it stays constant.
    before = np.interp(world.slowest_ms - typical, *known)
    # Average over several simulations; in each of them, a fixed rank may still be the last.
    changes = np.mean([way - world.slowest_ms + np.interp(way - typical, *known) - before for way in slowest], axis=0)
    real = world.step_ms
    return _times_faster(real, np.maximum(real + changes, 0.0))


def gain_all_even(world: World) -> float:
    """Return the gain if the slowest rank of each step took as long as the median of the others."""
    return _times_faster(world.step_ms, world.step_ms - over_peers(world.own_ms).max(axis=1))


def gain_with_even_transfer(world: World) -> float:
    """Return the gain if the transfer of every step took the median time."""
    rest = world.step_ms - world.slowest_ms
    return _times_faster(world.step_ms, world.slowest_ms + np.median(rest))


def transfer_after(lead_ms: Floats, transfer_ms: Floats) -> tuple[Floats, Floats]:
    """Return the typical transfer time as a function of the lead: medians over steps with similar leads.

    Each median is shrunk towards the median of all steps according to its standard error (James and Stein, 1961).

    Args:
        lead_ms: [S] Time by which the last rank exceeds a typical one.
        transfer_ms: [S] Transfer time of the same steps.

    Returns:
        The leads and the transfer times at them, at most MAX_LEADS each.

    """
    order: Ints = np.argsort(lead_ms, kind="stable")
    parts = np.array_split(order, min(MAX_LEADS, max(1, len(order) // PART_STEPS)))
    leads = np.array([series_median(lead_ms[part]) for part in parts])
    transfers = np.array([series_median(transfer_ms[part]) for part in parts])
    strays = [series_median(np.abs(transfer_ms[part] - usual)) for part, usual in zip(parts, transfers, strict=True)]
    # The standard error of a median is 1.25 times that of a mean. A standard deviation is 1.48 median deviations.
    errors = 1.25 * 1.48 * np.array(strays) / np.sqrt([len(part) for part in parts])
    middle = series_median(transfer_ms)
    away = transfers - middle
    kept = np.clip(1 - np.square(errors) / np.maximum(np.square(away), 1e-18), 0.0, 1.0)
    return leads, middle + kept * away


def _times_faster(real: Floats, simulated: Floats) -> float:
    total = float(simulated.sum())
    return float(real.sum()) / total if total > 0 else 1.0


def _peers_own(world: World, peers: Ints) -> tuple[Floats, Floats]:
    """Return the largest and the median own time of the peers in each step, [S] each."""
    among = np.zeros(len(world.ranks), bool)
    among[peers] = True
    largest = np.max(world.own_ms, axis=1, where=among, initial=0.0)
    return largest, row_medians(world.own_ms[:, some_of(peers)])


def _slowest_with(
    world: World, fixed: list[int], peers: Ints, largest: Floats, typical: Floats, phase: str | None
) -> list[Floats]:
    """Return several estimates of each step's largest own time [S] if the `fixed` ranks were like their peers."""
    values = world.own_ms
    if phase is not None:
        values = world.phases_ms[..., OWN_PHASES.index(phase)]
        typical = row_medians(values[:, some_of(peers)])
    keeps = world.own_ms[:, fixed] - values[:, fixed]
    if len(peers) == 1:
        # Give the fixed rank its peer's times, sorted like its own times: its slowest step gets the peer's longest
        # time.
        order = values[:, fixed].argsort(axis=0).argsort(axis=0)
        mended = keeps + np.sort(typical)[order]
        return [np.maximum(largest, mended.max(axis=1))]
    ways = []
    some = peers[: VARIATION_DRAWS + len(fixed) - 1]
    # Correct for few peers: the median includes the peer itself, so the deviation from it is too small.
    strays = (values[:, some] - typical[:, None]) * (len(peers) / (len(peers) - 1)) ** 0.5
    # Subtract lasting differences between peers, which are not random variation.
    strays -= column_medians(strays)
    turns = np.arange(len(fixed)) // len(some)
    part = len(world) // (VARIATION_DRAWS + int(turns[-1]) + 1)
    for draw in range(VARIATION_DRAWS):
        # If several fixed ranks share a peer, they get its variation from different steps.
        steps = np.arange(len(world))[:, None] + (draw + 1 + turns) * part
        picked = strays[steps % len(world), (np.arange(len(fixed)) + draw) % len(some)]
        ways.append(np.maximum(largest, (keeps + typical[:, None] + picked).max(axis=1)))
    return ways


@dataclass(frozen=True)
class Timeline:
    """The steps of a timeline. Columns are those of its world."""

    world: World
    """The steps of the timeline only."""
    order: list[int]
    """Columns, ordered from the latest to arrive to the earliest."""
    mended: list[int]
    """Columns whose own time is replaced by their peers' in `mended_ms`; empty if no ranks, or all ranks, are late."""
    mended_ms: list[float | None]
    """Length in ms of each step if the columns in `mended` had their peers' own time; None if `mended` is empty."""
    host: str = ""
    """Host of the late ranks, if the host as a whole is late."""


def timeline(world: World, steps: int, late: Sequence[int] = (), host: str = "") -> Timeline:
    """Return the timeline of the last steps of a world.

    Columns are ordered by their mean wait over these steps, because the rank that arrives last has waited least. In a
    single step for which no finding names a rank, the critical rank's time is replaced.

    Args:
        world: The window.
        steps: Maximum number of steps.
        late: The ranks whose own time is replaced by their peers'.
        host: Host of the late ranks, if the host as a whole is late.

    """
    part = world.last_steps(steps)
    order = np.argsort(part.wait_ms.mean(axis=0), kind="stable").tolist()
    mended = [part.ranks.index(rank) for rank in late if rank in part.ranks]
    if not mended and len(part) == 1 and part.critical[0] >= 0:
        mended = [int(part.critical[0])]
    if len(mended) == len(part.ranks):
        mended = []
    return Timeline(part, order, mended, _without(part, mended), host if mended else "")


def _without(part: World, mended: list[int]) -> list[float | None]:
    """Return the length of each step if the own time of these columns were the median of their peers'."""
    if not mended:
        return [None] * len(part)
    peers = np.delete(part.own_ms, mended, axis=1)
    own = np.maximum(peers.max(axis=1), np.minimum(np.median(peers, axis=1), part.own_ms[:, mended].max(axis=1)))
    rest = part.step_ms - part.own_ms.max(axis=1)
    return [max(0.0, float(value)) for value in own + rest]
