"""Parts of a snapshot that only one screen shows: built for the viewers that wish for them."""

from __future__ import annotations

import msgspec

from ddpmon.analysis.heat import HOT, code, fold, folded, hot_since, worst
from ddpmon.analysis.timeline import timeline
from ddpmon.hub.store import Store
from ddpmon.messages import (
    HeatRow,
    HeatView,
    HeatWish,
    Snapshot,
    TimelineRow,
    TimelineStep,
    TimelineView,
    TimelineWish,
    Wish,
)

HOT_WAIT = 0.5
"""A wait of half of the step."""


def with_parts(shot: Snapshot, store: Store, wish: Wish) -> Snapshot:
    """The snapshot, with what is wished for."""
    if wish.heat is None and wish.timeline is None:
        return shot
    heat = _heat(store, wish.heat) if wish.heat else None
    return msgspec.structs.replace(shot, heat=heat, timeline=_timeline(store, wish.timeline) if wish.timeline else None)


def _host(store: Store, rank: int) -> str:
    process = store.registry.seats.get(rank)
    return process.hello.host if process else ""


def _heat(store: Store, wish: HeatWish) -> HeatView | None:
    heat = store.heat
    grid = heat.grid(wish.metric, wish.steps, wish.columns)
    if grid is None:
        return None
    rows = fold([_host(store, rank) for rank in heat.ranks], wish.rows)
    cells = folded(grid.cells, rows)
    least = code(grid, HOT_WAIT if wish.metric == "wait" else HOT)
    told = []
    for row, line in zip(rows, cells, strict=True):
        share, place = (0.0, None) if wish.metric == "loss" else hot_since(line, least)
        since = None if place is None else max(1, (grid.first_bin + place) * grid.steps)
        ends = heat.ranks[row.columns[0]], heat.ranks[row.columns[-1]]
        told.append(
            HeatRow(row.hosts, ends, len(row.columns), heat.ranks[worst(grid.cells, row)], round(share, 4), since)
        )
    return HeatView(
        wish.metric, grid.steps, grid.first_bin, cells.shape[1], grid.last_step, grid.low, grid.high, told,
        cells.tobytes(),
    )  # fmt: skip


def _timeline(store: Store, wish: TimelineWish) -> TimelineView | None:
    if store.world is None:
        return None
    told = timeline(store.world, wish.steps, store.findings)
    world = told.world
    phases = [world.phases_ms, world.wait_ms[..., None], world.transfer_ms[..., None]]
    rows = []
    for column in told.order[wish.first : wish.first + wish.rows]:
        each = [
            tuple(round(float(value), 3) for values in phases for value in values[i, column]) for i in range(len(world))
        ]
        rows.append(TimelineRow(world.ranks[column], _host(store, world.ranks[column]), each))
    steps = [
        TimelineStep(
            int(world.step[i]),
            round(float(world.step_ms[i]), 3),
            world.ranks[critical] if (critical := int(world.critical[i])) >= 0 else None,
            told.mended_ms[i],
        )
        for i in range(len(world))
    ]
    mended = None if told.mended is None else world.ranks[told.mended]
    return TimelineView(steps, rows, len(world.ranks), mended)
