"""Findings about transfers between ranks that slow down all ranks, needless transfers, and links that are slower than
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from ddpmon import numbers
from ddpmon.analysis.kinds.kind import Kind, Moment, StepCost
from ddpmon.analysis.kinds.relevance import BOUND, RELEVANT, SHORTEST_MS, STAYS, cost, gradient_transfer, lasting_cost
from ddpmon.analysis.processes.causes import ACTIVITY_RATIO, READ_BYTES_PER_S
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.parallelism import collectives, parallelism_kinds, with_ddp
from ddpmon.analysis.slowness.slowdown import WORTH
from ddpmon.analysis.statistics.arrays import column_medians, row_medians
from ddpmon.analysis.statistics.excess import EXPLAINS, over_peers, some_of
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import format_count
from ddpmon.messages import FSDP, FSDP2, TENSOR_PARALLEL, Finding, Phase

LITTLE = 0.1
"""Transfer time, as a share of the rest of the step, below which accumulating more gradients gains little."""
BUCKETS = 4
"""Number of buckets into which the advice splits gradients that are in a single bucket. Only the last bucket is then
sent after backward, so a quarter of the transfer remains visible."""
LEAST_BUCKET_BYTES = 1 << 17
"""Bucket size in bytes below which latency dominates the transfer on any usual link."""
ONE_BUCKET_BYTES = 25 << 20
"""DDP's default size of a bucket (bucket_cap_mb)."""
FEWEST_CHECKS = 2
"""Minimum number of checks for unused parameters: the first backward pass is often untypical."""
MIN_TRANSFER_STEPS = 10
"""Minimum number of steps for a finding. Few steps are enough, because reductions are counted, not estimated."""


@Kind(
    "warn",
    "all-reduce transfers for {transfer_ms:.1f} ms a step:| {share:.0%} of it|, {size}",
    "Accumulate the gradients of {times} batches under no_sync: the run is then {accumulated:.2f}x faster. {overlap}"
    " {link}{of_hosts}",
    gone="communication no longer slows the steps down",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
    slows="waiting for the transfer between ranks",
    quantities=("sent", "received"),
    remedy="Transfer fewer bytes per sample: use larger batches, gradient accumulation or half precision. Then try a"
    " faster network.",
)
def communication_bound(moment: Moment) -> Iterator[Finding]:
    """Transfers between ranks slow all of them down: DDP's all-reduce, or other collectives.

    If DDP's all-reduce alone takes less than a third of a step, ddpmon adds up all collectives of the step. These
    include the collectives of SyncBatchNorm and of the script. The cost must exceed the error of the hosts' clocks.
    """
    world, evidence = moment.world, moment.evidence
    ddp, gradients = with_ddp(evidence.parallelism), gradient_transfer(world)
    if len(world.ranks) < 2:
        return
    of_ddp = lasting_cost(moment, gradients, BOUND, least_ms=evidence.clocks_within_ms) if ddp else None
    found = of_ddp or lasting_cost(moment, world.transfer_ms.mean(axis=1), BOUND, least_ms=evidence.clocks_within_ms)
    if found is None:
        return
    of_hosts, busy = _of_hosts(moment.evidence.conditions_by_rank)
    facts, beside = {"transfer_ms": found.cost_ms, "busy_host": busy}, {"of_hosts": of_hosts}
    if evidence.gloo_on_gpus and len(set(evidence.gpus.values())) == len(world.ranks):  # NCCL refuses a shared GPU.
        beside["of_hosts"] = _NCCL + of_hosts
    if of_ddp:
        size, bandwidth = float(world.mean("gradient_bytes").mean()), evidence.bus_bandwidth_gb_s()
        backward = float(np.median(world.mean("phases_ms")[:, Phase.BACKWARD]))
        yield moment.finding(
            facts | {"bytes": size, "bus_bandwidth_gb_s": bandwidth}, world.ranks, "transfer", cost=found,
            beside=beside | shorter_all_reduce(found, size, backward, bandwidth),
        )  # fmt: skip
        return
    half = found.step_ms / (found.step_ms - found.cost_ms / 2)
    yield moment.finding(
        facts,
        world.ranks,
        "transfer",
        headline="collectives transfer for {transfer_ms:.1f} ms a step:| {share:.0%} of it|{part}",
        advice=(_BESIDES_DDP if ddp else _of_collectives(evidence.parallelism, half))
        + " ddpmon did not measure how many bytes these collectives move.{of_hosts}",
        beside={**beside, "part": f", DDP's part is {float(gradients.mean()):.1f} ms" if ddp else ""},
        cost=found,
    )


_NCCL = " gloo copies tensors through the CPU. Each rank has a GPU of its own: use the backend nccl instead."
_BESIDES_DDP = (
    "Most of this time is not DDP's all-reduce, and no computation hides it. Without this transfer, steps would be "
    "{gain:.2f}x faster. SyncBatchNorm calls two collectives per layer; GroupNorm, or BatchNorm with larger batches, "
    "calls none. ZeroRedundancyOptimizer broadcasts the new weights in each step. If the script reduces metrics in "
    "each step, reduce them only in every 50th step."
)
"""Advice about collectives that a script or its layers call in addition to DDP's."""


def _of_hosts(conditions: Mapping[int, Conditions]) -> tuple[str, str | None]:
    """Return a sentence about which host's link may be slow, and the host whose network has much other traffic.

    All ranks send equally much in an all-reduce. So do their hosts, apart from different numbers of ranks. The ends of
    synchronisations cannot show which host's link is slow, because these ends serve to align the hosts' clocks.
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
        if ACTIVITY_RATIO.is_reached(mine / max(theirs, 1.0)) and READ_BYTES_PER_S.is_reached(mine - theirs):
            return (
                f" The network of {busy} carries {numbers.size(mine)}/s, and the networks of the other hosts carry"
                f" {numbers.size(theirs)}/s. Look for other programs that use the link of {busy}."
            ), busy
    if len(hosts) < 2 or "" in hosts:
        return "", None
    return (
        f" ddpmon cannot tell whether one of the {len(hosts)} hosts has a slower link, because it aligns their clocks"
        " at the ends of these transfers. Compare the hosts' links yourself (ethtool, iperf3, nccl-tests)."
    ), None


def shorter_all_reduce(cost: StepCost, size: float, backward: float, bandwidth: float | None) -> dict[str, object]:
    """Return facts about how to hide or shorten the all-reduce of gradients.

    Args:
        cost: Cost of the transfer that no computation hides.
        size: Bytes of the gradients.
        backward: Milliseconds that backward takes in a step.
        bandwidth: Bus bandwidth in GB/s; None: not measured.

    """
    step, transfer = cost.step_ms, cost.cost_ms
    times = max(2, ceil(transfer / (LITTLE * max(step - transfer, 1e-3))))
    # All buckets but the last can be sent while backward runs, if it takes long enough.
    hidden = min(transfer * (1 - 1 / BUCKETS), backward)
    overlap = (
        f"Backward takes {backward:.1f} ms, which is too short to hide the transfer. Larger batches, or half of the"
        f" bytes (DDP's bf16_compress_hook), make steps up to {step / (step - transfer / 2):.2f}x faster."
    )
    if 0 < size < BUCKETS * LEAST_BUCKET_BYTES:
        overlap = (
            f"{numbers.size(size)} is so little data that more bandwidth or smaller buckets would not help: most of the"
            " time is latency between ranks. With larger batches, ranks synchronise less often."
        )
    elif 0 < size < ONE_BUCKET_BYTES:
        overlap = (
            "Nearly all gradients are in one DDP bucket, which DDP sends after backward."
            f" bucket_cap_mb={size / BUCKETS / 2**20:.2g} makes {BUCKETS} buckets. If the link is as fast as now,"
            f" backward then hides {hidden:.1f} ms, and steps are up to {step / (step - hidden):.2f}x faster."
        )
    link = "ddpmon run --buckets measures the speed of the link."
    if bandwidth:
        link = f"The measured bus bandwidth is {bandwidth:.2g} GB/s; compare this with the speed of the link."
    accumulated = step / (step - transfer + transfer / times)
    return {"size": numbers.size(size), "times": times, "accumulated": accumulated, "overlap": overlap, "link": link}


def _of_collectives(parallelism: str, half: float) -> str:
    """Return how to shorten collectives other than DDP's.

    Args:
        parallelism: The run's kinds of parallelism.
        half: The gain if transfers took half of their time.

    """
    kinds = parallelism_kinds(parallelism)
    if FSDP2 in kinds:
        return (
            "If memory allows, set reshard_after_forward=False, which avoids the all-gathers in backward."
            " MixedPrecisionPolicy(param_dtype=torch.bfloat16) halves the bytes of float32 and makes steps up to"
            f" {half:.2f}x faster. model.set_requires_gradient_sync(False) avoids reduce-scatters between accumulated"
            " batches. Larger batches hide more of the transfer."
        )
    if FSDP in kinds:
        return (
            "If memory allows, use ShardingStrategy.SHARD_GRAD_OP, which avoids the all-gathers in backward."
            f" MixedPrecision(param_dtype=torch.bfloat16) halves the bytes of float32 and makes steps up to {half:.2f}x"
            " faster. Larger batches hide more of the transfer."
        )
    if TENSOR_PARALLEL in kinds:
        return (
            "Tensor parallelism needs the fastest links: keep its device mesh inside one machine, or make the mesh"
            " smaller."
        )
    return (
        f"These collectives are {collectives(parallelism)}: call fewer, larger or asynchronous ones, or "
        "use larger batches."
    )


@Kind(
    "warn",
    "DDP reduces gradients {reductions} times per update:| {share:.0%} of a step|; {gain:.2f}x faster with no_sync",
    "Run forward and backward of all batches but the last under model.no_sync(). Gradients then add up on each rank,"
    " and the last backward reduces the sum. This saves {transfer_ms:.1f} ms a step ({gain:.2f}x faster). Accelerate's"
    " accumulate() and Lightning's accumulate_grad_batches do this themselves. If the script needs the reduced"
    " gradients after each backward, do not change this.",
    gone="DDP reduces gradients once per update",
    fewest_steps=MIN_TRANSFER_STEPS,
    by_cost=True,
    outdoes=(communication_bound.name,),
    slows="reducing gradients several times for an update",
)
def needless_reductions(moment: Moment) -> Iterator[Finding]:
    """DDP reduces gradients several times for each update: the script accumulates them without no_sync.

    The cost is the transfer time of all reductions except the last one. ddpmon checks only runs with a single DDP
    model. It ignores optimizers with closures (LBFGS), because each call of a closure needs reduced gradients.
    """
    world, evidence = moment.world, moment.evidence
    counts = {evidence.setups[rank].reductions if rank in evidence.setups else 0 for rank in world.ranks}
    times = max(counts, default=0)
    if len(world.ranks) < 2 or len(counts) > 1 or times < 2 or not with_ddp(evidence.parallelism):
        return
    needless = gradient_transfer(world) * (times - 1) / times
    if found := lasting_cost(moment, needless, least_ms=evidence.clocks_within_ms):
        yield moment.finding({"reductions": times, "transfer_ms": found.cost_ms}, world.ranks, "transfer", cost=found)


@Kind(
    "warn",
    "find_unused_parameters=True takes {search_ms:.1f} ms a step and finds nothing:| {share:.0%} of it",
    "Remove find_unused_parameters=True. Every parameter got a gradient on every rank in {checks}. Keep the option"
    " only if some steps use other parts of the model.",
    gone="the search for unused parameters costs little now",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
    slows="the search for unused parameters",
)
def unused_search(moment: Moment) -> Iterator[Finding]:
    """find_unused_parameters=True is useless here: DDP searches in each step and has never found an unused parameter.

    On the training thread, ddpmon measures how long DDP searches the autograd graph for unused parameters. On another
    thread, it measures how long DDP takes to mark one parameter as used. The cost does not include the small all-reduce
    of the search. ddpmon checks for unused parameters after 1, 10 and 100 backward calls, then after every 500.
    """
    setups = [moment.evidence.setups[rank] for rank in moment.world.ranks if rank in moment.evidence.setups]
    models = [model for setup in setups for model in setup.models if model.search_us]
    if not models or any(model.unused or model.searches < FEWEST_CHECKS for model in models):
        return
    each_us = [sum(model.search_us for model in setup.models) * max(1, setup.reductions) for setup in setups]
    found, checks = cost(moment, max(each_us) / 1000), min(model.searches for model in models)
    if SHORTEST_MS.is_reached(found.step_ms) and WORTH.is_reached(found.gain, held=moment.previous_finding is not None):
        beside = {"checks": format_count(checks, "checked backward call")}
        facts = {"search_ms": found.cost_ms, "checked": checks}
        yield moment.finding(facts, moment.world.ranks, beside=beside, cost=found)


LEAST_MS = Threshold(
    1.0,
    of="ms by which the transfer of one rank takes longer than the transfers of its peers",
    why="A judgement call: a thread that waits for a transfer wakes up later on a busy machine than on an idle one.",
    stay=1.0 * STAYS,
)
WINDOW_PARTS = 4
"""Number of parts of the window. In each part, most transfers must be long, because a few in a row prove no slow
link."""


@Kind(
    "warn",
    "{who}{where}:| {what} {transfer_over_ms:+.1f} ms after arrival|; {gain:.2f}x faster if fixed",
    "All ranks work equally long, but {who} {leave} {which} {transfer_over_ms:.1f} ms after {their} peers: {look}.",
    gone="the link of {who} is as fast as the others' again",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
    slows="rank {rank}'s slow link",
    quantities=("sent", "received"),
    remedy="Look at that rank's network card, cable or PCIe lane; `ddpmon run --buckets` shows the bandwidth.",
)
def slow_link(moment: Moment) -> Iterator[Finding]:
    """Ranks arrive at the all-reduce with the others, but leave it later: their link is slow, not their work.

    A rank that leaves a synchronisation late begins its next step late. Therefore it is also last at the next
    synchronisation, although its own times are normal. If ddpmon looked only at arrivals, it would wrongly report slow
    work. A rank that waits for a core leaves late as well, but has no slow link. With two ranks, ddpmon cannot decide
    whose link is slow.
    """
    world, ranks, stays = moment.world, len(moment.world.ranks), moment.previous_finding is not None
    means, conditions = world.mean("transfer_ms"), moment.evidence.conditions_by_rank
    least = max(
        LEAST_MS.number_to_reach(stays),
        RELEVANT.number_to_reach(stays) * float(world.step_ms.mean()),
        moment.evidence.clocks_within_ms,
    )
    slow = np.flatnonzero(means - np.median(means) >= least)
    if not len(slow) or len(slow) > (ranks - 1) // 2:
        return
    peers = np.delete(np.arange(ranks), slow)
    over = world.transfer_ms[:, slow] - row_medians(world.transfer_ms[:, some_of(peers)])[:, None]
    sure = np.min([column_medians(part) for part in np.array_split(over, WINDOW_PARTS)], axis=0) >= least
    if not sure.any():
        return
    late = sorted(world.ranks[column] for column in slow[sure].tolist())
    found = cost(moment, float(np.median(over[:, sure].max(axis=1))))
    if over_peers(world.mean("own_ms")[None]).max() >= found.cost_ms:
        return  # A late rank delays the others by more than a slow link, and they leave in the ring's order.
    mine = [conditions[rank] for rank in late if rank in conditions]
    if any((one.starved_share or 0.0) >= EXPLAINS.enter * found.share for one in mine):
        return  # A rank that waits for a core also leaves late.
    ddp, many = with_ddp(moment.evidence.parallelism), len(late) > 1
    hosts = {one.host for one in mine} - {""}
    where = f" on {hosts.pop()}" if len(hosts) == 1 else ""
    beside = {
        "where": where,
        "what": "all-reduce" if ddp else "collectives",
        "which": "each all-reduce" if ddp else f"a step's {collectives(moment.evidence.parallelism)}",
        "leave": "leave" if many else "leaves",
        "look": _where_to_look(moment.evidence.conditions, where, many=many),
    }
    facts = {"transfer_over_ms": found.cost_ms, "peers_transfer_ms": float(np.median(means[peers]))}
    yield moment.finding(facts, late, "transfer", beside=beside, cost=found)


def _where_to_look(conditions: Sequence[Conditions], where: str, *, many: bool) -> str:
    its, hosts = "their" if many else "its", {one.host for one in conditions}
    lanes = f"the PCIe lanes of {its} card{'s' * many} (nvidia-smi topo -m)"
    if len(hosts) == 1 and "" not in hosts:
        cores = f"{its} cores, and what else runs on them"
        with_gpus = any(one.device_name for one in conditions)
        return f"all ranks are on one machine, with no network between them: look at {lanes if with_gpus else cores}"
    return (
        f"look at {its} link{where}: the network interface in use (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), its speed"
        f" and errors (ethtool), {lanes}"
    )
