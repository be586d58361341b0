"""Collectives that are not DDP's all-reduce and hold all ranks back: FSDP's, those of DTensors, of the script."""

from __future__ import annotations

from ddpmon.analysis.parallelism import collectives, parts
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import FSDP, FSDP2, TENSOR_PARALLEL, Finding

SHORTEST_MS = 5.0
"""Shorter steps are all overhead: shares of them say little."""
TRANSFER_SHARE = 0.35
STAYS = 0.7
"""Share of its threshold that keeps a finding."""


def collectives_bound(world: World, known: Finding | None, parallelism: str) -> Finding | None:
    """The finding that collectives hold all ranks back. known: what was found last."""
    step = float(world.step_ms.mean())
    transfer = float(world.mean("transfer_ms").mean())
    if len(world.ranks) < 2 or step < SHORTEST_MS or transfer < step * TRANSFER_SHARE * (STAYS if known else 1.0):
        return None
    return Finding(
        "communication_bound",
        "warn",
        fitting(f"collectives transfer for {transfer:.1f} ms a step: {transfer / step:.0%} of it"),
        list(world.ranks),
        "transfer",
        known.since_step if known and known.since_step is not None else int(world.step[0]),
        cost_ms=transfer,
        evidence={"transfer_ms": transfer, "share": transfer / step, "gain": step / (step - transfer)},
        advice=f"{_advice(parallelism, transfer, step)} How many bytes they move was not measured.",
    )


def _advice(parallelism: str, transfer: float, step: float) -> str:
    kinds = parts(parallelism)
    half = step / (step - transfer / 2)
    if FSDP2 in kinds:
        return (
            "Where memory allows, reshard_after_forward=False leaves out backward's all-gathers;"
            f" MixedPrecisionPolicy(param_dtype=torch.bfloat16) halves the bytes of float32: up to {half:.2f}x;"
            " model.set_requires_gradient_sync(False) leaves out reduce-scatters between accumulated batches; larger"
            " batches hide more."
        )
    if FSDP in kinds:
        return (
            "Where memory allows, ShardingStrategy.SHARD_GRAD_OP leaves out backward's all-gathers;"
            f" MixedPrecision(param_dtype=torch.bfloat16) halves the bytes of float32: up to {half:.2f}x; larger"
            " batches hide more."
        )
    if TENSOR_PARALLEL in kinds:
        return "Tensor parallelism wants the fastest links: keep its mesh inside a machine, or make it smaller."
    return f"They are {collectives(parallelism)}: fewer, larger or asynchronous ones, or larger batches between them."
