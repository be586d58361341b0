"""What all-reduce costs over the steps that a viewer wishes for."""

from __future__ import annotations

from ddpmon.analysis.since_start import Sums, efficiency_since, gain_without_waiting_since, slowest_since
from ddpmon.analysis.summary import summarise
from ddpmon.hub.store import Store
from ddpmon.hub.view import all_reduce_view, efficiency_view
from ddpmon.messages import COST_STEPS, AllReduceView, CostView, CostWish


def cost_view(store: Store, wish: CostWish) -> CostView | None:
    """None before the first step."""
    if wish.over == "start":
        sums = store.since_start.sums
        return None if sums is None else _since_start(sums)
    world = store.last_steps(COST_STEPS) if wish.over == "last" else store.world
    if world is None:
        return None
    summary = summarise(world)
    several = len(world.ranks) > 1
    slowest = int(summary.own_ms.argmax())
    return CostView(
        wish.over,
        summary.window,
        len(world),
        all_reduce_view(world, summary),
        efficiency_view(summary.efficiency) if several else None,
        world.ranks[slowest] if several else None,
        float(summary.over_median[slowest]) if several else None,
    )


def _since_start(sums: Sums) -> CostView:
    if len(sums.ranks) < 2:
        return CostView("start", (sums.first, sums.last), sums.steps, None, None)
    wait, exposed = sums.exposed_wait_ms / sums.steps, sums.exposed_ms / sums.steps
    all_reduce = AllReduceView(
        payload_bytes=sums.gradient_bytes / sums.steps,
        wait_ms=wait,
        transfer_ms=exposed - wait,
        exposed_share=sums.exposed_ms / max(sums.length_ms, 1e-9),
        gain_without_waiting=gain_without_waiting_since(sums),
        beside_ms=max(0.0, sums.blocked_ms - sums.exposed_ms) / sums.steps,
    )
    slowest, over = slowest_since(sums)
    tree = efficiency_view(efficiency_since(sums))
    return CostView(
        "start", (sums.first, sums.last), sums.steps, all_reduce if sums.gradient_bytes else None, tree, slowest, over
    )
