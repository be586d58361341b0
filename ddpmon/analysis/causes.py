"""What holds all ranks back alike: data, communication, garbage collection, steps that are too small."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil

import numpy as np

from ddpmon.analysis import loaders
from ddpmon.analysis.collectives import SHORTEST_MS, STAYS, TRANSFER_SHARE, collectives_bound
from ddpmon.analysis.conditions import Conditions
from ddpmon.analysis.losses import loss_diverged, loss_spiked
from ddpmon.analysis.parallelism import with_ddp
from ddpmon.analysis.words import counted, fitting
from ddpmon.analysis.world import World
from ddpmon.messages import OWN_PHASES, Finding

FEWEST_STEPS = 40
MIB = 1 << 20
DATA_SHARE = 0.3
GC_SHARE = 0.03
SMALL_MS = 10.0
"""Steps that are longer have other troubles."""
COMPUTES = 0.5
"""Share of a step in forward and backward below which the rest is what it costs to take one."""
BUCKETS = 4
"""Into which gradients that are one bucket can be cut, so that all but one go while backward runs."""
ONE_BUCKET_BYTES = 25 << 20
"""DDP's own size of a bucket."""


def causes(
    world: World,
    before: Sequence[Finding] = (),
    bus_bandwidth_gb_s: float | None = None,
    conditions: Sequence[Conditions] = (),
    parallelism: str = "",
    unmeasured: Collection[str] = (),
) -> list[Finding]:
    """Findings about the whole world, costliest first.

    before: what was found last. bus_bandwidth_gb_s: of the buckets' all-reduce, where they are recorded. conditions: of
    the ranks that told of theirs. parallelism: how the ranks train; "": with DDP. unmeasured: phases that are not then.
    """
    if len(world) < FEWEST_STEPS:
        return []
    known = {finding.kind: finding for finding in before}
    found = [
        _data_bound(world, known.get("data_bound"), conditions),
        _gc_pauses(world, known.get("gc_pauses")),
        loss_diverged(world, known.get("loss_diverged")),
        _communication_bound(world, known.get("communication_bound"), bus_bandwidth_gb_s)
        if with_ddp(parallelism)
        else collectives_bound(world, known.get("communication_bound"), parallelism),
        loss_spiked(world),
    ]
    if not any(found) and "forward" not in unmeasured:
        found.append(_overhead(world, known.get("overhead_bound"), parallelism))
    return sorted((f for f in found if f), key=lambda f: -(f.cost_ms or 0.0))


def _since(world: World, known: Finding | None) -> int:
    return known.since_step if known and known.since_step is not None else int(world.step[0])


def _step_ms(world: World) -> float:
    return float(world.step_ms.mean())


def _data_bound(world: World, known: Finding | None, conditions: Sequence[Conditions]) -> Finding | None:
    step = _step_ms(world)
    by_rank = world.mean("phases_ms")[:, OWN_PHASES.index("data")]
    data = float(np.quantile(by_rank, 0.5, method="lower"))  # what most ranks wait: half of them are not all
    if step < SHORTEST_MS or data < step * DATA_SHARE * (STAYS if known else 1.0):
        return None
    rest = max(step - data, 1e-3)
    return Finding(
        "data_bound",
        "warn",
        fitting(
            f"all ranks wait {data:.1f} ms a step for data: {data / step:.0%} of it", f"; {step / rest:.2f}x without"
        ),
        list(world.ranks),
        "data",
        _since(world, known),
        cost_ms=data,
        evidence={"data_ms": data, "share": data / step, "gain": step / rest},
        advice=loaders.advice(data, step, conditions),
    )


def _communication_bound(world: World, known: Finding | None, bandwidth: float | None) -> Finding | None:
    step = _step_ms(world)
    transfer = float((world.mean("exposed_ms") - world.mean("exposed_wait_ms")).mean())
    if len(world.ranks) < 2 or step < SHORTEST_MS or transfer < step * TRANSFER_SHARE * (STAYS if known else 1.0):
        return None
    size = float(world.mean("gradient_bytes").mean())
    backward = float(np.median(world.mean("phases_ms")[:, OWN_PHASES.index("backward")]))
    times = max(2, ceil(transfer / (0.1 * max(step - transfer, 1e-3))))
    accumulated = step / (step - transfer + transfer / times)
    # All buckets but the last can go while backward runs, as far as that is long enough.
    hidden = min(transfer * (1 - 1 / BUCKETS), backward)
    if 0 < size < ONE_BUCKET_BYTES:
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
    return Finding(
        "communication_bound",
        "warn",
        fitting(
            f"all-reduce transfers for {transfer:.1f} ms a step: {transfer / step:.0%} of it",
            f", {size / MIB:.1f} MiB",
        ),
        list(world.ranks),
        "transfer",
        _since(world, known),
        cost_ms=transfer,
        evidence={
            "transfer_ms": transfer,
            "share": transfer / step,
            "bytes": size,
            "gain": step / (step - transfer),
            "bus_bandwidth_gb_s": bandwidth,
        },
        advice=(
            f"Gradients of {times} batches accumulated under no_sync make it {accumulated:.2f}x as fast. {overlap}"
            f" {link}"
        ),
    )


def _gc_pauses(world: World, known: Finding | None) -> Finding | None:
    step = _step_ms(world)
    # The others wait for whoever collects: in each step the longest pause counts.
    cost = float(world.gc_ms.max(axis=1).mean())
    if step < SHORTEST_MS or cost < step * GC_SHARE * (STAYS if known else 1.0):
        return None
    means = world.mean("gc_ms")
    most, own = float(world.gc_ms.max()), float(means.mean())
    at_once = cost - own if len(world.ranks) > 1 else 0.0
    steps = float((world.gc_ms > 0.1).any(axis=1).mean())
    return Finding(
        "gc_pauses",
        "warn",
        fitting(
            f"Python's garbage collection costs {cost:.1f} ms a step: {cost / step:.0%} of it",
            f", up to {most:.0f} ms at once",
        ),
        [world.ranks[column] for column in np.flatnonzero(means > 0.5 * means.max()).tolist()],
        None,
        _since(world, known),
        cost_ms=cost,
        evidence={
            "gc_ms": cost,
            "share": cost / step,
            "longest_ms": most,
            "steps_share": steps,
            "same_time_ms": at_once,
        },
        advice="gc.freeze() after the model is built takes what lives forever out of it."
        + (
            f" gc.disable() and a gc.collect() on all ranks at once every so many steps save {at_once:.1f} ms a step of"
            " waiting for each other."
            if at_once >= cost / 4
            else " All ranks collect at once already: larger numbers for gc.set_threshold make it rarer."
        ),
    )


def _overhead(world: World, known: Finding | None, parallelism: str) -> Finding | None:
    """Steps so small that most of them is what it takes to take one. Never more than a hint: nothing is wrong."""
    step = _step_ms(world)
    phases = np.median(world.mean("phases_ms"), axis=0)
    data, forward, backward = (float(phases[OWN_PHASES.index(name)]) for name in ("data", "forward", "backward"))
    computes = forward + backward
    wait = float(world.mean("wait_ms").mean())
    fixed = step - computes - data - wait
    scale = 1 / STAYS if known else 1.0
    if step >= SMALL_MS * scale or computes >= COMPUTES * step * scale or fixed < (1 - COMPUTES) * step / scale:
        return None
    factor = 2 * step / (step + computes + data + wait)
    samples = float(world.mean("samples").mean())
    batch = f" of {counted(round(samples), 'sample')}" if samples else ""
    synchronisations = "the all-reduce" if with_ddp(parallelism) else "the collectives"
    return Finding(
        "overhead_bound",
        "info",
        fitting(f"a step takes {step:.1f} ms, and {computes:.1f} of them are forward and backward"),
        list(world.ranks),
        None,
        _since(world, known),
        evidence={"step_ms": step, "forward_backward_ms": computes, "fixed_ms": fixed, "gain": factor},
        advice=(
            f"{fixed:.1f} ms of each step{batch} are the optimizer, {synchronisations} and what is around them,"
            f" whatever the batch: batches twice as large pay it half as often, up to {factor:.2f}x the samples a"
            " second."
        ),
    )
