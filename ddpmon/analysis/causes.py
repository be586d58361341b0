"""What holds all ranks back alike: data, communication, garbage collection; and losses that are far apart."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import OWN_PHASES, Finding

FEWEST_STEPS = 40
SHORTEST_MS = 5.0
"""Shorter steps are all overhead: shares of them say little."""
DATA_SHARE = 0.3
TRANSFER_SHARE = 0.35
GC_SHARE = 0.03
LOSS_TIMES = 2.0
SURE = 8.0
ALIKE = 10
"""Steps whose losses are taken as one, because neighbours are alike."""
STAYS = 0.7
"""Share of its threshold that keeps a finding."""


def causes(world: World, before: Sequence[Finding] = ()) -> list[Finding]:
    """Findings about the whole world, costliest first. before: what was found last."""
    if len(world) < FEWEST_STEPS:
        return []
    known = {finding.kind: finding for finding in before}
    found = [
        detect(world, known.get(kind))
        for kind, detect in (
            ("data_bound", _data_bound),
            ("communication_bound", _communication_bound),
            ("gc_pauses", _gc_pauses),
            ("loss_diverged", _loss_diverged),
        )
    ]
    return sorted((f for f in found if f), key=lambda f: -(f.cost_ms or 0.0))


def _since(world: World, known: Finding | None) -> int:
    return known.since_step if known and known.since_step is not None else int(world.step[0])


def _step_ms(world: World) -> float:
    return float(world.length_ms.max(axis=1).mean())


def _data_bound(world: World, known: Finding | None) -> Finding | None:
    step = _step_ms(world)
    by_rank = world.phases_ms[..., OWN_PHASES.index("data")].mean(axis=0)
    data = float(np.median(by_rank))
    if step < SHORTEST_MS or data < step * DATA_SHARE * (STAYS if known else 1.0):
        return None
    rest = max(step - data, 1e-3)
    workers = ceil(data / rest)
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
        advice=(
            f"A batch takes {data:.1f} ms longer to load than training hides. Without DataLoader workers:"
            f" num_workers={workers} would hide it; with W of them: {step / rest:.1f} x W. Whether disk, decoding or"
            " collating takes the time was not measured."
        ),
    )


def _communication_bound(world: World, known: Finding | None) -> Finding | None:
    step = _step_ms(world)
    transfer = float((world.exposed_ms - world.exposed_wait_ms).mean())
    if len(world.ranks) < 2 or step < SHORTEST_MS or transfer < step * TRANSFER_SHARE * (STAYS if known else 1.0):
        return None
    size = float(world.gradient_bytes.mean())
    backward = float(np.median(world.phases_ms[..., OWN_PHASES.index("backward")].mean(axis=0)))
    times = max(2, ceil(transfer / (0.1 * max(step - transfer, 1e-3))))
    accumulated = step / (step - transfer + transfer / times)
    overlap = (
        "Nearly all of backward is over before it begins: smaller buckets (bucket_cap_mb) may start it earlier."
        if size < 25 * 2**20 and backward > transfer
        else f"Backward takes {backward:.1f} ms, too little to hide it: larger batches or fewer bytes (bf16) help."
    )
    return Finding(
        "communication_bound",
        "warn",
        fitting(
            f"all-reduce transfers for {transfer:.1f} ms a step: {transfer / step:.0%} of it",
            f", {size / 2**20:.1f} MiB",
        ),
        list(world.ranks),
        "transfer",
        _since(world, known),
        cost_ms=transfer,
        evidence={"transfer_ms": transfer, "share": transfer / step, "bytes": size, "gain": step / (step - transfer)},
        advice=(
            f"Gradients of {times} batches accumulated under no_sync make it {accumulated:.2f}x as fast. {overlap}"
            " How fast the link could be was not measured."
        ),
    )


def _gc_pauses(world: World, known: Finding | None) -> Finding | None:
    step = _step_ms(world)
    # The others wait for whoever collects: in each step the longest pause counts.
    cost = float(world.gc_ms.max(axis=1).mean())
    if step < SHORTEST_MS or cost < step * GC_SHARE * (STAYS if known else 1.0):
        return None
    means = world.gc_ms.mean(axis=0)
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


def _loss_diverged(world: World, known: Finding | None) -> Finding | None:
    if len(world.ranks) < 2 or not world.has_loss.all() or not np.isfinite(world.loss).all():
        return None
    blocks = np.array([part.mean(axis=0) for part in np.array_split(world.loss, len(world) // ALIKE)])
    means = blocks.mean(axis=0)
    error = float(np.median(blocks.std(axis=0, ddof=1))) / np.sqrt(len(blocks))
    scale = STAYS if known else 1.0
    middle = float(np.median(means))
    if len(means) == 2:
        middle = float(means.min())
    away = means - middle
    far = (np.abs(away) > scale * SURE * error) & (np.abs(away) > scale * (LOSS_TIMES - 1) * abs(middle))
    far &= np.abs(away) > 1e-6
    if not far.any() or far.sum() > len(means) / 2:
        return None
    ranks = [world.ranks[column] for column in np.flatnonzero(far).tolist()]
    value = float(means[far][np.abs(away[far]).argmax()])
    many = len(ranks) > 1
    names = rank_list(ranks, len(world.ranks))
    return Finding(
        "loss_diverged",
        "warn",
        fitting(
            f"rank{'s' if many else ''} {names}: loss {value:.4g}, the others' {middle:.4g}", ", for the whole window"
        ),
        ranks,
        None,
        _since(world, known),
        evidence={"loss": value, "median_loss": middle, "error": error},
        advice=(
            "Replicas have the same weights, so it is the data or the loss: look at which samples and labels"
            f" rank {names} gets, and at how its loss is averaged."
        ),
    )
