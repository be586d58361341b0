"""The transfer between ranks holds all of them back: DDP's all-reduce, or other collectives in its place.

Where DDP's all-reduce alone takes less than a third of a step, all collectives of a step are counted together, those of
SyncBatchNorm and of the script itself too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import BOUND, StepCost, lasting_cost
from ddpmon.analysis.processes.conditions import BYTES_PER_S, TIMES, Conditions
from ddpmon.analysis.processes.parallelism import collectives, parts, with_ddp
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.words import MB, MIB, binary_size, fitting
from ddpmon.messages import FSDP, FSDP2, TENSOR_PARALLEL, Finding, Phase

LITTLE = 0.1
"""Share of the rest of a step that transfer is to be by accumulating: more batches gain little."""
BUCKETS = 4
"""Into which gradients that are one bucket can be cut, so that all but one go in backward: a quarter is left."""
LEAST_BUCKET_BYTES = 1 << 17
"""Of less than that the latency counts on any usual link, and no size of buckets changes it."""
ONE_BUCKET_BYTES = 25 << 20
"""DDP's own size of a bucket: bucket_cap_mb, where nobody sets it."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Report DDP's all-reduce where it alone takes too much, otherwise all collectives of a step together."""
    world, evidence = moment.world, moment.evidence
    ddp = with_ddp(evidence.parallelism)
    gradients = (world.exposed_ms - world.exposed_wait_ms).mean(axis=1)
    cost = _lasting(moment, gradients) if ddp else None
    is_of_gradients = cost is not None
    cost = cost or _lasting(moment, world.transfer_ms.mean(axis=1))
    if cost is None:
        return
    known: dict[str, float | None] = {"transfer_ms": cost.cost_ms, "share": cost.share, "gain": cost.gain}
    of_hosts, busy = _of_hosts(moment.conditions)
    if is_of_gradients:
        size, bandwidth = float(world.mean("gradient_bytes").mean()), evidence.bus_bandwidth_gb_s()
        known |= {"bytes": size, "bus_bandwidth_gb_s": bandwidth}
        backward = float(np.median(world.mean("phases_ms")[:, Phase.BACKWARD]))
        words = all_reduce_words(cost, size, backward, bandwidth, of_hosts)
    else:
        lead = f"collectives transfer for {cost.cost_ms:.1f} ms a step:"
        half = cost.step_ms / (cost.step_ms - cost.cost_ms / 2)
        part = f", {float(gradients.mean()):.1f} ms of that DDP's" if ddp else ""
        advice = _besides_ddp(cost) if ddp else _of_collectives(evidence.parallelism, half)
        advice = f"{advice} How many bytes they move was not measured.{of_hosts}"
        words = Words(fitting(f"{lead} {cost.share:.0%} of it", part), advice, lead=lead)
    yield KIND.finding(
        "warn", words, world.ranks, "transfer", evidence=known, beside={"busy_host": busy},
        since_step=cost.since, cost_ms=cost.cost_ms,
    )  # fmt: skip


def _lasting(moment: Moment, each_ms: Floats) -> StepCost | None:
    """Return what transfer costs; None where that is too little, or less than the clocks of hosts may be off."""
    cost = lasting_cost(moment, KIND, each_ms, BOUND) if len(moment.world.ranks) > 1 else None
    return cost if cost and cost.cost_ms >= moment.evidence.clocks_within_ms else None


def _besides_ddp(cost: StepCost) -> str:
    """Return how to make collectives shorter that a script or its layers call beside DDP's."""
    return (
        "Most of it is not DDP's all-reduce, and nothing hides it; without any transfer steps would be"
        f" {cost.gain:.2f}x as fast. SyncBatchNorm calls two collectives a layer: GroupNorm, or BatchNorm with larger"
        " batches, calls none. What the script itself reduces in each step, such as metrics, can wait for every 50th."
    )


def _of_hosts(conditions: Mapping[int, Conditions]) -> tuple[str, str | None]:
    """Tell what is known of which host's link is slow, and the host whose network carries what is not this run's.

    All ranks send as much in an all-reduce, so their hosts do, give or take how many ranks each has. Which host's link
    is slow cannot be told from when synchronisations end, since the clocks of hosts are aligned by that.
    """
    hosts = {one.host for one in conditions.values()}
    of_ranks: dict[str, list[float]] = {}
    for one in conditions.values():
        if "sent" in one.means and "received" in one.means:
            of_ranks.setdefault(one.host, []).append(one.means["sent"] + one.means["received"])
    rates = {host: float(np.median(values)) for host, values in of_ranks.items()}
    if len(rates) > 1:
        busy = max(rates, key=lambda name: rates[name])
        mine, theirs = rates[busy], float(np.median([rate for name, rate in rates.items() if name != busy]))
        if TIMES.reached(mine / max(theirs, 1.0)) and BYTES_PER_S.reached(mine - theirs):
            return (
                f" The network of {busy} carries {mine / MB:,.0f} MB/s, those of the other hosts {theirs / MB:,.0f}:"
                " look at what else uses its link."
            ), busy
    if len(hosts) < 2 or "" in hosts:
        return "", None
    return (
        f" Whether one of the {len(hosts)} hosts has a slower link cannot be told from here, as their clocks are"
        " aligned by the ends of what it slows: compare the hosts' links (ethtool, iperf3, nccl-tests)."
    ), None


def all_reduce_words(cost: StepCost, size: float, backward: float, bandwidth: float | None, of_hosts: str) -> Words:
    """Return what the all-reduce of gradients takes, and how to hide or shorten it.

    Args:
        cost: What its transfer costs that nothing hides.
        size: Bytes of the gradients.
        backward: Milliseconds that backward takes in a step.
        bandwidth: Bus bandwidth in GB/s; None: not measured.
        of_hosts: The last sentence of the advice.

    """
    step, transfer = cost.step_ms, cost.cost_ms
    times = max(2, ceil(transfer / (LITTLE * max(step - transfer, 1e-3))))
    accumulated = step / (step - transfer + transfer / times)
    # All buckets but the last can go while backward runs, as far as that is long enough.
    hidden = min(transfer * (1 - 1 / BUCKETS), backward)
    if 0 < size < BUCKETS * LEAST_BUCKET_BYTES:
        overlap = (
            f"{binary_size(size)} are too few for bandwidth or smaller buckets to matter: what takes the time is that"
            " ranks reach each other at all. Larger batches make it rarer."
        )
    elif 0 < size < ONE_BUCKET_BYTES:
        overlap = (
            f"Nearly all of it is one of DDP's buckets, which goes when backward is over: bucket_cap_mb="
            f"{size / BUCKETS / MIB:.2g}"
            f" makes {BUCKETS} of them, and if the link keeps its pace {hidden:.1f} ms hide in backward: up to"
            f" {step / (step - hidden):.2f}x."
        )
    else:
        overlap = (
            f"Backward takes {backward:.1f} ms, too little to hide it: with larger batches, or with half of the bytes"
            f" (DDP's bf16_compress_hook) up to {step / (step - transfer / 2):.2f}x."
        )
    link = (
        f"The bus bandwidth is {bandwidth:.2g} GB/s: compare it with the link's."
        if bandwidth
        else "How fast the link is was not measured (--buckets does)."
    )
    lead = f"all-reduce transfers for {transfer:.1f} ms a step:"
    return Words(
        fitting(f"{lead} {cost.share:.0%} of it", f", {binary_size(size)}"),
        f"Gradients of {times} batches accumulated under no_sync make it {accumulated:.2f}x as fast. {overlap}"
        f" {link}{of_hosts}",
        lead=lead,
    )


def _of_collectives(parallelism: str, half: float) -> str:
    """Return how to make collectives other than DDP's shorter. half: times as fast with half of the transfer."""
    kinds = parts(parallelism)
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


KIND = Kind(
    "communication_bound",
    gone="communication no longer holds the step back",
    detect=detect,
    fewest_steps=FEWEST,
    by_cost=True,
    slows="waiting for the transfer between ranks",
    quantities=("sent", "received"),
)
