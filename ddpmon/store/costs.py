"""What all-reduce costs over the steps that a viewer asks for."""

from __future__ import annotations

from ddpmon.analysis.steps.since_start import Sums, efficiency_since, gain_without_waiting_since, slowest_since
from ddpmon.analysis.steps.summary import summarise
from ddpmon.messages import (
    COST_STEPS,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
    SYNC_KINDS,
    AllReduceView,
    CostView,
    CostWish,
)
from ddpmon.store.store import Store
from ddpmon.store.view import all_reduce_view, counts_collectives


def cost_view(store: Store, wish: CostWish) -> CostView | None:
    """None before the first step."""
    if wish.over == "start":
        sums = store.since_start.sums
        return None if sums is None else _since_start(store, sums)
    world = store.last_steps(COST_STEPS) if wish.over == "last" else store.world
    if world is None:
        return None
    summary = summarise(world)
    several = len(world.ranks) > 1 and "wait" not in store.registry.unmeasured
    slowest = int(summary.own_ms.argmax())
    return CostView(
        wish.over,
        summary.window,
        len(world),
        all_reduce_view(world, summary, collectives=counts_collectives(store)),
        summary.efficiency if several else None,
        world.ranks[slowest] if several else None,
        float(summary.over_median[slowest]) if several else None,
    )


def _since_start(store: Store, sums: Sums) -> CostView:
    if len(sums.ranks) < 2 or "wait" in store.registry.unmeasured:
        return CostView("start", (sums.first, sums.last), sums.steps, None, None)
    gradients = sums.gradient_bytes > 0
    wait, blocked = (sums.exposed_wait_ms, sums.exposed_ms) if gradients else (sums.wait_ms, sums.blocked_ms)
    has_all_reduce = gradients or (counts_collectives(store) and blocked > 0)
    all_reduce = AllReduceView(
        payload_bytes=sums.gradient_bytes / sums.steps,
        wait_ms=wait / sums.steps,
        transfer_ms=(blocked - wait) / sums.steps,
        exposed_share=blocked / max(sums.length_ms, 1e-9),
        gain_without_waiting=gain_without_waiting_since(sums),
        beside_ms=max(0.0, sums.blocked_ms - sums.exposed_ms) / sums.steps if gradients else None,
        kind=SYNC_KINDS[SYNC_GRADIENTS if gradients else SYNC_COLLECTIVE],
    )
    slowest, over = slowest_since(sums)
    tree = efficiency_since(sums)
    return CostView(
        "start", (sums.first, sums.last), sums.steps, all_reduce if has_all_reduce else None, tree, slowest, over
    )
