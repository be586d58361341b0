"""Computes the cost of all-reduce over the steps that a viewer selects."""

from __future__ import annotations

from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.what_if import gain_with_even_transfer
from ddpmon.analysis.steps.world import World
from ddpmon.messages import (
    COST_STEPS,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
    SYNC_KINDS,
    AllReduceView,
    CostView,
)
from ddpmon.store.store import Store


def cost_view(store: Store, over: str) -> CostView | None:
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


def all_reduce_view(store: Store, sums: StepSums, world: World | None) -> AllReduceView | None:
    """Return the cost of gradient synchronisation over some steps; without DDP, that of the script's collectives.

    Args:
        store: The run.
        sums: Sums over the steps.
        world: The steps themselves, if there are few enough for a what-if analysis.

    Returns:
        The cost, or None if there is no synchronisation or no other rank to wait for.

    """
    gradients = sums.gradient_bytes > 0
    wait, blocked = (sums.exposed_wait_ms, sums.exposed_ms) if gradients else (sums.wait_ms, sums.blocked_ms)
    counts_collectives = not with_ddp(store.registry.parallelism) and "wait" not in store.registry.unmeasured
    if len(sums.ranks) < 2 or not (gradients or (counts_collectives and blocked > 0)):
        return None
    return AllReduceView(
        payload_bytes=sums.gradient_bytes / sums.steps,
        wait_ms=wait / sums.steps,
        transfer_ms=(blocked - wait) / sums.steps,
        exposed_share=blocked / max(sums.length_ms, 1e-9),
        gain_without_waiting=sums.gain_without_waiting,
        gain_with_even_transfer=None if world is None else gain_with_even_transfer(world),
        beside_ms=max(0.0, sums.blocked_ms - sums.exposed_ms) / sums.steps if gradients else None,
        kind=SYNC_KINDS[SYNC_GRADIENTS if gradients else SYNC_COLLECTIVE],
    )
