"""The transfer between ranks holds all of them back: DDP's all-reduce, or other collectives in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, SHORTEST_MS, STAYS, mean_step_ms, since
from ddpmon.analysis.processes.parallelism import collectives, parts, with_ddp
from ddpmon.analysis.processes.traffic import BusyHost, busy_host, several_hosts
from ddpmon.analysis.steps.recurrence import recurring_mean
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import MB, MIB, binary_size, fitting
from ddpmon.messages import FSDP, FSDP2, TENSOR_PARALLEL, Phase

SHARE = Threshold(
    0.35,
    of="share of a step in which ranks transfer and nothing hides it",
    why="A judgement: without it steps are 1.5 times as fast, which is worth another way to train.",
    keeps=STAYS,
)
LITTLE = 0.1
"""Share of the rest of a step that transfer is to be by accumulating: more batches gain little."""
BUCKETS = 4
"""Into which gradients that are one bucket can be cut, so that all but one go in backward: a quarter is left."""
LEAST_BUCKET_BYTES = 1 << 17
"""Of less than that the latency counts on any usual link, and no size of buckets changes it."""
ONE_BUCKET_BYTES = 25 << 20
"""DDP's own size of a bucket: bucket_cap_mb, where nobody sets it."""


@dataclass(frozen=True)
class AllReduceBound:
    """What DDP's all-reduce takes of a step that compute does not hide; gain: times as fast without."""

    transfer_ms: float
    share: float
    bytes: float
    gain: float
    bus_bandwidth_gb_s: float | None
    step_ms: float = for_words()
    backward_ms: float = for_words()
    busy_host: str | None = None
    """Whose network carries far more than those of other hosts."""
    hosts: int = for_words(0)
    """Of several: how many."""
    busy: BusyHost | None = for_words(None)


@dataclass(frozen=True)
class CollectivesBound:
    """What collectives that are not DDP's take of a step; gain: times as fast without."""

    transfer_ms: float
    share: float
    gain: float
    step_ms: float = for_words()
    parallelism: str = for_words()
    busy_host: str | None = None
    hosts: int = for_words(0)
    busy: BusyHost | None = for_words(None)


def detect(moment: Moment) -> Iterator[Detection[AllReduceBound | CollectivesBound]]:
    """With DDP its gradients' transfer counts, with anything else that of all collectives."""
    world, held, evidence = moment.world, moment.held_one(KIND), moment.evidence
    ddp = with_ddp(evidence.parallelism)
    step = mean_step_ms(world)
    by_rank = world.mean("exposed_ms") - world.mean("exposed_wait_ms") if ddp else world.mean("transfer_ms")
    transfer, least = float(by_rank.mean()), step * SHARE.asked(held is not None)
    if len(world.ranks) < 2 or step < SHORTEST_MS.enter or transfer < least:
        return
    in_steps = world.exposed_ms - world.exposed_wait_ms if ddp else world.transfer_ms
    if recurring_mean(in_steps.mean(axis=1)) < least:
        return
    if transfer < evidence.clocks_within_ms:
        return  # it may be that the clocks of hosts are taken for apart by as much as they are not
    share, gain = transfer / step, step / max(step - transfer, 1e-3)
    hosts, busy = several_hosts(moment.conditions), busy_host(moment.conditions)
    where = (busy.host if busy else None, len(hosts), busy)
    facts: AllReduceBound | CollectivesBound
    if ddp:
        size = float(world.mean("gradient_bytes").mean())
        backward = float(np.median(world.mean("phases_ms")[:, Phase.BACKWARD]))
        facts = AllReduceBound(transfer, share, size, gain, evidence.bus_bandwidth_gb_s(), step, backward, *where)
    else:
        facts = CollectivesBound(transfer, share, gain, step, evidence.parallelism, *where)
    yield Detection(KIND, "warn", facts, world.ranks, "transfer", since(world, held), cost_ms=transfer)


def words(detection: Detection[AllReduceBound | CollectivesBound]) -> Words:
    """What it takes, and how to hide or shorten it."""
    facts = detection.facts
    if isinstance(facts, CollectivesBound):
        lead = f"collectives transfer for {facts.transfer_ms:.1f} ms a step:"
        return Words(
            fitting(f"{lead} {facts.share:.0%} of it"),
            f"{_of_collectives(facts)} How many bytes they move was not measured.{_of_hosts(facts)}",
            lead=lead,
        )
    lead = f"all-reduce transfers for {facts.transfer_ms:.1f} ms a step:"
    return Words(
        fitting(f"{lead} {facts.share:.0%} of it", f", {binary_size(facts.bytes)}"),
        f"{_of_all_reduce(facts)}{_of_hosts(facts)}",
        lead=lead,
    )


def _of_hosts(facts: AllReduceBound | CollectivesBound) -> str:
    """What is known of which host's link is slow."""
    if facts.busy is not None:
        mine, theirs = facts.busy.bytes_per_s / MB, facts.busy.peers_bytes_per_s / MB
        return (
            f" The network of {facts.busy.host} carries {mine:,.0f} MB/s, those of the other hosts {theirs:,.0f}: look"
            " at what else uses its link."
        )
    if facts.hosts > 1:
        return (
            f" Whether one of the {facts.hosts} hosts has a slower link cannot be told from here, as their clocks are"
            " aligned by the ends of what it slows: compare the hosts' links (ethtool, iperf3, nccl-tests)."
        )
    return ""


def _of_all_reduce(facts: AllReduceBound) -> str:
    step, transfer, size, backward = facts.step_ms, facts.transfer_ms, facts.bytes, facts.backward_ms
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
        f"The bus bandwidth is {facts.bus_bandwidth_gb_s:.2g} GB/s: compare it with the link's."
        if facts.bus_bandwidth_gb_s
        else "How fast the link is was not measured (--buckets does)."
    )
    return (
        f"Gradients of {times} batches accumulated under no_sync make it {accumulated:.2f}x as fast. {overlap} {link}"
    )


def _of_collectives(facts: CollectivesBound) -> str:
    kinds = parts(facts.parallelism)
    half = facts.step_ms / (facts.step_ms - facts.transfer_ms / 2)
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
    return (
        f"They are {collectives(facts.parallelism)}: fewer, larger or asynchronous ones, or larger batches between"
        " them."
    )


KIND = Kind(
    "communication_bound",
    subject="world",
    gone="communication no longer holds the step back",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
    slows="waiting for the transfer between ranks",
    quantities=("sent", "received"),
)
