"""Gradients are reduced several times for each update: they are accumulated without no_sync.

What it costs is the transfer of all reductions but the last. Only runs of a single DDP model are judged, and closures
(LBFGS) are not: each of their calls needs reduced gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds import communication_bound
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import RELEVANT, lasting_cost
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding

FEWEST_STEPS = 10
"""How often gradients are reduced is counted, not estimated; few steps are enough for what a transfer takes."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Return the finding where all ranks reduce equally often, and doing it once would save time worth having."""
    world, evidence = moment.world, moment.evidence
    counts = {evidence.setups[rank].reductions if rank in evidence.setups else 0 for rank in world.ranks}
    if len(world.ranks) < 2 or len(counts) != 1 or not with_ddp(evidence.parallelism):
        return
    times = counts.pop()
    if times < 2:
        return
    needless = (world.exposed_ms - world.exposed_wait_ms).mean(axis=1) * (times - 1) / times
    cost = lasting_cost(moment, KIND, needless, RELEVANT)
    if cost is None or cost.cost_ms < evidence.clocks_within_ms:
        return
    lead = f"gradients are reduced {times} times an update:"
    words = Words(
        fitting(f"{lead} {cost.share:.0%} of a step", f"; {cost.gain:.2f}x with no_sync"),
        f"Put forward and backward of the first {times - 1} of {times} batches under model.no_sync(): their gradients"
        f" add up on each rank, and the last backward reduces the sum. That saves {cost.cost_ms:.1f} ms a step"
        f" ({cost.gain:.2f}x). Accelerate's accumulate() and Lightning's accumulate_grad_batches do it themselves."
        " Where a script reads the reduced gradients in between, it is meant.",
        lead=lead,
    )
    known = {"reductions": times, "transfer_ms": cost.cost_ms, "share": cost.share, "gain": cost.gain}
    yield KIND.finding(
        "warn", words, world.ranks, "transfer", evidence=known, since_step=cost.since, cost_ms=cost.cost_ms
    )


KIND = Kind(
    "needless_reductions",
    gone="gradients are reduced once for each update",
    detect=detect,
    fewest_steps=FEWEST_STEPS,
    by_cost=True,
    outdoes=(communication_bound.KIND.name,),
    slows="reducing gradients several times for an update",
)
