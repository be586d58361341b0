"""Makes the view of an inspected rank: its place, and the rank through time."""

from __future__ import annotations

from ddpmon.analysis.kinds.slow_steps import late_steps
from ddpmon.analysis.over_time.rank_history import rank_courses
from ddpmon.analysis.processes.hangs import why_no_stack
from ddpmon.messages import InspectView, InspectWish, StackView
from ddpmon.plain import utf8
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store


def inspect_view(store: Store, wish: InspectWish) -> InspectView:
    """One rank's course through time, and its latest stack."""
    rows = rank_courses(store.heat, wish.rank, wish.steps, wish.columns, late_steps(store.findings))
    columns, last_step = (len(rows[0].mine), store.heat.last_step) if rows else (0, 0)
    return InspectView(wish.rank, wish.steps, columns, last_step, rows, stack_view(store, wish.rank))


def stack_views(store: Store) -> list[StackView]:
    """Return where every rank was last."""
    return [stack_view(store, rank) for rank in range(store.registry.world_size or store.run.world_size)]


def stack_view(store: Store, rank: int) -> StackView:
    """Return where a rank was last, or why there is no stack of it."""
    process = store.registry.seats.get(rank)
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
