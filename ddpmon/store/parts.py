"""Builds the parts of a snapshot that only one screen shows, for the viewers that request them."""

from __future__ import annotations

import bisect

import msgspec
import numpy as np

from ddpmon.analysis.findings import late_steps, ranks_to_fix
from ddpmon.analysis.over_time.cells import hot_since, worst_cells, worst_column
from ddpmon.analysis.over_time.heat import LATE, least_cell
from ddpmon.analysis.over_time.rank_groups import group_ranks
from ddpmon.analysis.over_time.rank_history import own_courses, rank_courses, sync_courses
from ddpmon.analysis.processes.hangs import why_no_stack
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.what_if import timeline
from ddpmon.analysis.steps.world import World
from ddpmon.messages import (
    COST_STEPS,
    HEAT_JUDGED,
    HEAT_METRICS,
    HEAT_MOMENTS,
    NOTABLE,
    OWN_PHASES,
    PHASES,
    CostView,
    Course,
    CoursesView,
    HeatRow,
    HeatView,
    InspectView,
    LongStep,
    ProfileView,
    RankSpans,
    SeriesRequest,
    SeriesView,
    Snapshot,
    StackView,
    TimelineRequest,
    TimelineRow,
    TimelineStep,
    TimelineView,
    ViewRequest,
)
from ddpmon.plain import utf8
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store
from ddpmon.store.view import all_reduce_view

NO_PROFILE = ProfileView(0, [], waits=False, rows=[])
_HOT = {"wait": 0.5, "gpu": 0.5}
"""Smallest share at which a cell of the heat map counts as notable: a rank waits for half of the step, or a GPU is idle
for half of the time."""


def with_parts(shot: Snapshot, store: Store, view_request: ViewRequest) -> Snapshot:
    """Return the snapshot with the requested parts added."""
    if view_request == ViewRequest():
        return shot
    return msgspec.structs.replace(
        shot,
        heat=_heat(store, view_request.heat, *(view_request.heat.quantities[:1] or HEAT_METRICS[:1]))
        if view_request.heat
        else None,
        timeline=_timeline(store, view_request.timeline) if view_request.timeline else None,
        cost=_cost(store, view_request.cost) if view_request.cost else None,
        inspect=inspect_view(store, view_request.inspect.listed[0], view_request.inspect)
        if view_request.inspect
        else None,
        stacks=stack_views(store) if view_request.stacks else [],
        series=_series(store, view_request.series) if view_request.series else None,
        heat_phases=_heat_phases(store, view_request.heat_phases) if view_request.heat_phases else [],
        sync=_sync(store, view_request.sync) if view_request.sync else None,
        strips=_strips(store, view_request.strips) if view_request.strips else None,
        samples=_samples(store, view_request.samples) if view_request.samples else None,
        profile=(store.profile or NO_PROFILE) if view_request.profile else None,
        cores=CoursesView(view_request.cores.per_column, 0, []) if view_request.cores else None,  # not recorded
    )


def _series(store: Store, request: SeriesRequest) -> SeriesView | None:
    return store.histories.view(request.quantities[0], request.span_s, request.end_s, request.columns)


def _courses(store: Store, per_column: int, courses: list[Course], *, of_steps: bool = True) -> CoursesView:
    last_step = store.heat.last_step if of_steps and courses else 0
    return CoursesView(per_column, len(courses[0].cells) if courses else 0, courses, last_step)


def _strips(store: Store, request: SeriesRequest) -> CoursesView:
    courses = own_courses(store.heat, request.listed, request.per_column, request.columns)
    return _courses(store, request.per_column, courses)


def _sync(store: Store, request: SeriesRequest) -> CoursesView:
    measured = "wait" not in store.registry.unmeasured
    courses = sync_courses(store.heat, request.per_column, request.columns) if measured else []
    return _courses(store, request.per_column, courses)


def _samples(store: Store, request: SeriesRequest) -> CoursesView:
    ranks = request.listed
    processes = [store.registry.process_of_rank[rank] for rank in ranks if rank in store.registry.process_of_rank]
    memories = [p.sample.gpu_memory_total_bytes or 0 for p in processes if p.sample]
    full = {"gpu": 100.0, "cpu": 100.0, "starved": 1.0, "gpu_memory": max(memories, default=0) or 1e-9}
    courses = store.sample_bins.courses(ranks, request.quantities, request.per_column, request.columns, full)
    return _courses(store, request.per_column, courses, of_steps=False)


def _host(store: Store, rank: int) -> str:
    process = store.registry.process_of_rank.get(rank)
    return process.hello.host if process else ""


def _heat(store: Store, request: SeriesRequest, metric: str) -> HeatView | None:
    heat = store.heat
    judged = request.beyond_chance and metric in HEAT_JUDGED
    if judged:
        grid = heat.judged_grid(metric, request.per_column, request.columns, late_steps(store.findings))
    else:
        grid = heat.metric_grid(metric, request.per_column, request.columns)
    if grid is None:
        return None
    chosen = [
        column for column, rank in enumerate(heat.ranks) if request.ranks is None or is_within(rank, request.ranks)
    ]
    ranks, of_ranks = [heat.ranks[column] for column in chosen], grid.cells[chosen]
    rows = group_ranks([_host(store, rank) for rank in ranks], request.rows)
    cells = worst_cells(of_ranks, rows)
    least = LATE if judged else least_cell(grid, _HOT.get(metric, NOTABLE))
    compared = judged and metric != "step"
    lit = [compared and bool((line >= least).any()) for line in of_ranks]
    heat_rows = []
    for row, line in zip(rows, cells, strict=True):
        share, place = (0.0, None) if metric == "loss" else hot_since(line, least)
        since = None if place is None else max(1, (grid.first_bin + place) * grid.steps)
        ends = ranks[row.columns[0]], ranks[row.columns[-1]]
        heat_rows.append(
            HeatRow(
                row.hosts, ends, len(row.columns), ranks[worst_column(of_ranks, row)], round(share, 3), since,
                sum(lit[column] for column in row.columns),
            )
        )  # fmt: skip
    began_us = store.clock.us_at(store.run.created_at)
    places = np.linspace(0, len(grid.end_us) - 1, HEAT_MOMENTS).round().astype(int)
    moments = [round((int(end_us) - began_us) / 1e6, 1) if end_us else None for end_us in grid.end_us[places]]
    return HeatView(
        metric, grid.steps, grid.first_bin, cells.shape[1], grid.last_step, grid.low, grid.high, heat_rows,
        cells.tobytes(), judged, grid.noise, moments,
    )  # fmt: skip


def _heat_phases(store: Store, request: SeriesRequest) -> list[HeatView]:
    """Return a heat map of each phase that is measured."""
    measured = [phase for phase in OWN_PHASES if phase not in store.registry.unmeasured]
    views = (_heat(store, request, phase) for phase in measured)
    return [view for view in views if view is not None]


def is_within(rank: int, spans: RankSpans) -> bool:
    """Return whether a rank is inside one of the spans."""
    place = bisect.bisect_right(spans, rank, key=lambda span: span[0])
    return place > 0 and rank <= spans[place - 1][1]


def _timeline(store: Store, request: TimelineRequest) -> TimelineView | None:
    if store.world is None:
        return None
    chosen = store.longest_steps.find_step(request.step) if request.step else None
    view = timeline(store.world if chosen is None else chosen, request.steps, *ranks_to_fix(store.findings))
    world = view.world
    phases = [world.phases_ms, world.wait_ms[..., None], world.transfer_ms[..., None]]
    rows = []
    order = [each for each in view.order if request.ranks is None or is_within(world.ranks[each], request.ranks)]
    for column in order[request.first : request.first + request.rows]:
        each = [
            tuple(round(float(value), 3) for values in phases for value in values[i, column]) for i in range(len(world))
        ]
        rows.append(TimelineRow(world.ranks[column], _host(store, world.ranks[column]), each))
    steps = [
        TimelineStep(
            int(world.step[i]),
            round(float(world.step_ms[i]), 3),
            world.ranks[critical] if (critical := int(world.critical[i])) >= 0 else None,
            view.mended_ms[i],
        )
        for i in range(len(world))
    ]
    mended = [world.ranks[column] for column in view.mended]
    return TimelineView(
        steps, rows, len(order), mended[0] if mended else None, mended, view.host,
        _longest(store, store.world) if request.longest else [], store.longest_steps.since,
    )  # fmt: skip


def _longest(store: Store, world: World) -> list[LongStep]:
    """Return the longest steps. Each has the phase whose time exceeded its mean over the window the most."""
    usual = {
        rank: [*own, wait, transfer]
        for rank, own, wait, transfer in zip(
            world.ranks, world.phases_ms.mean(axis=0), world.wait_ms.mean(axis=0), world.transfer_ms.mean(axis=0),
            strict=True,
        )
    }  # fmt: skip
    longest = []
    for kept in store.longest_steps.steps:
        critical = int(kept.critical[0])
        column = critical if critical >= 0 else int(kept.own_ms[0].argmax())
        rank = kept.ranks[column]
        phases = [*kept.phases_ms[0, column], kept.wait_ms[0, column], kept.transfer_ms[0, column]]
        over = [value - mean for value, mean in zip(phases, usual.get(rank, [0.0] * len(phases)), strict=True)]
        worst = max(range(len(over)), key=over.__getitem__)
        length_ms = round(float(kept.step_ms[0]), 3)
        longest.append(LongStep(int(kept.step[0]), length_ms, rank, PHASES[worst], round(float(over[worst]), 3)))
    return longest


def _cost(store: Store, over: str) -> CostView | None:
    """Return the cost of all-reduce, or None before the first step.

    Args:
        store: The run.
        over: One of COST_WINDOWS, which selects the steps.

    """
    world = store.last_steps(COST_STEPS) if over == "last" else store.world
    sums = store.since_start.sums if over == "start" else None if world is None else StepSums.from_world(world)
    if sums is None:
        return None
    shown = CostView(over, (sums.first, sums.last), sums.steps, None, None)
    if len(sums.ranks) < 2 or "wait" in store.registry.unmeasured:
        return shown
    all_reduce = all_reduce_view(store, sums, world if over != "start" else None)
    return CostView(shown.over, shown.window, shown.steps, all_reduce, sums.efficiency, *sums.slowest_rank)


def inspect_view(store: Store, rank: int, request: SeriesRequest) -> InspectView:
    """Return the history of one rank and its latest stack."""
    rows = rank_courses(store.heat, rank, request.per_column, request.columns, late_steps(store.findings))
    return InspectView(rank, _courses(store, request.per_column, rows), stack_view(store, rank))


def stack_views(store: Store) -> list[StackView]:
    """Return the latest stack of every rank."""
    return [stack_view(store, rank) for rank in range(store.registry.world_size or store.run.world_size)]


def stack_view(store: Store, rank: int) -> StackView:
    """Return the latest stack of a rank, or the reason why there is none."""
    process = store.registry.process_of_rank.get(rank)
    if process is None:
        return StackView(rank, why=why_no_stack(rank, heard=False))
    stack = process.stack
    on_hub_host = process.hello.host == store.registry.host or process.hello.through > 0
    at = store.clock.unix_at(stack.time_us) if stack and on_hub_host else None
    waits = process.asked_at is not None and process.held is None
    host = utf8(process.hello.host) if store.registry.host_is_silent(process) else ""
    steps_since = max(0, process.steps - stack.step) if stack else 0
    return StackView(rank, stack, at, waits, _why(rank, process, host), steps_since)


def _why(rank: int, process: RankProcess, host: str) -> str:
    return why_no_stack(
        rank,
        heard=True,
        gone=process.left or process.dead,
        held=process.held,
        unanswered=process.unanswered,
        host=host,
    )
