"""Findings about time that delays all ranks although no rank is slow: data, gaps, garbage collections, overhead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.relevance import (
    BOUND,
    COSTLY,
    RELEVANT,
    SHORTEST_MS,
    cost,
    goes_on,
    lasting_cost,
    most_ranks,
    recurring_mean,
)
from ddpmon.analysis.processes import loaders
from ddpmon.analysis.processes.data_readers import loading_facts, loading_samples, loading_words, slow_worker
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.processes.slow_lines import line_facts, line_of_ranks, line_words
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.words import format_count
from ddpmon.messages import Finding, Phase

COLLECTS_MS = 0.1
"""Time in ms of garbage collection above which it counts for a step. Collections of young generations take less."""
LARGE_COLLECTION_SHARE = 0.5
"""Time of a garbage collection, as a share of the second-longest collection, above which it counts as large. Full
collections reach this share, and collections of young generations do not."""
BEFORE_BACKWARD = "before backward"
GAPS = {"before forward": "before forward", BEFORE_BACKWARD: "between forward and backward"}
"""The probe's names for unmeasured time before a forward or a backward, and the words for it in sentences."""


@Kind(
    "warn",
    "all ranks wait {data_ms:.1f} ms a step for data:| {share:.0%} of it|{where}|; {gain:.2f}x faster if fixed",
    "{look}",
    gone="the DataLoader is fast enough again",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
    slows="waiting for data",
    names_line=True,
    remedy="Use more DataLoader workers (the finding says how many would keep up), a faster file format, or data "
    "that you decode before the training.",
)
def data_bound(moment: Moment) -> Iterator[Finding]:
    """All ranks wait for data."""
    world, conditions = moment.world, moment.evidence.conditions
    if found := lasting_cost(moment, most_ranks(world, Phase.DATA), BOUND):
        bound = loaders.bound_workers(conditions)
        samples, ranks = moment.evidence.stack_samples, world.ranks
        line = line_of_ranks(samples, ranks, "data", found.since, found.cost_ms, whole_world=True)
        loaded = loading_samples(samples, ranks, found.since)
        known = line is not None or loaded is not None
        look = loaders.advice(found.cost_ms, found.step_ms, conditions, cause_is_known=known)
        look = "" if loaded and slow_worker(loaded) else look  # More workers do not help if one worker is slow.
        said = [line_words(line, found.cost_ms) if line else "", loading_words(loaded) if loaded else "", look]
        beside = {
            "where": f"; workers on {bound.where} alone" if bound else f"; in {line.brief}" if line else "",
            "look": " ".join(filter(None, said)),
        }
        facts = {"data_ms": found.cost_ms} | (line_facts(line) if line else {})
        facts |= loading_facts(loaded) if loaded else {}
        yield moment.finding(facts, ranks, "data", beside=beside, cost=found)


@Kind(
    "info",
    "|a step takes {step_ms:.1f} ms, and {forward_backward_ms:.1f} of them are forward and backward",
    "{fixed_ms:.1f} ms of each step{batch} go to the optimizer, {synchronisations} and the code around them. The batch "
    "size does not change this time. With batches twice as large, the run processes up to {gain:.2f}x the samples per "
    "second.",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
    remedy="Use larger batches. The optimizer, the synchronisation and the code around them take the same time for any"
    " batch size.",
)
def overhead_bound(moment: Moment) -> Iterator[Finding]:
    """Steps are so short that fixed overhead takes most of them. This is never more than a hint: nothing is wrong.

    ddpmon reports this only if it measures the forward pass, and if steps are too short for other kinds of findings.
    """
    world = moment.world
    data, forward, backward = np.median(world.mean("phases_ms"), axis=0)[[Phase.DATA, Phase.FORWARD, Phase.BACKWARD]]
    computes, wait = float(forward + backward), float(world.mean("wait_ms").mean())
    step, fixed, share, _, since = cost(moment, float(world.step_ms.mean()) - computes - float(data) - wait)
    is_most = EXPLAINS.is_reached(share, held=moment.previous_finding is not None)
    if "forward" in moment.evidence.unmeasured or SHORTEST_MS.is_reached(step) or not is_most:
        return
    facts = {"step_ms": step, "forward_backward_ms": computes, "fixed_ms": fixed}
    samples, ddp = round(float(world.mean("samples").mean())), with_ddp(moment.evidence.parallelism)
    beside = {
        "batch": f" of {format_count(samples, 'sample')}" if samples else "",
        "synchronisations": "the all-reduce" if ddp else "the collectives",
    }
    facts["gain"] = 2 * step / (2 * step - fixed)
    yield moment.finding(facts, world.ranks, beside=beside, since_step=since)


@Kind(
    "info",
    "{gap_ms:.1f} ms of each step pass {place}, outside of any DataLoader:| {share:.0%}",
    "The script spends {gap_ms:.1f} ms of each step {place}. If the script loads or moves data there, use a DataLoader"
    " with workers, or a thread that fetches the next batch. `with ddpmon.phase(…)` around parts of the code shows"
    " which of them takes the time.",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
)
def gap(moment: Moment) -> Iterator[Finding]:
    """Time passes before a forward or a backward pass, outside everything that ddpmon measures.

    A script that loads data without a DataLoader does so in this time. The finding is a hint if it is a large share of
    the step on most ranks.
    """
    world, named = moment.world, moment.evidence.named
    if named is None or not lasting_cost(moment, most_ranks(world, Phase.OTHER), COSTLY):
        return
    means = named.mean_ms(world)
    spent = {name: float(np.quantile(means[name], 0.5, method="lower")) for name in GAPS if name in means}
    name = max(spent, key=lambda each: spent[each], default="")
    found = cost(moment, spent.get(name, 0.0))
    if not COSTLY.is_reached(found.share):
        return
    facts, beside = {"where": name, "gap_ms": found.cost_ms}, {"place": GAPS[name]}
    if name == BEFORE_BACKWARD and "forward" in moment.evidence.unmeasured:
        yield moment.finding(
            {**facts, "forward_included": True},
            world.ranks,
            "other",
            headline="{gap_ms:.1f} ms of each step pass before backward, the forward included:| {share:.0%}",
            advice="ddpmon cannot measure forward here. These {gap_ms:.1f} ms of each step therefore include forward"
            " and all other work of the script, such as loading or moving data. Put `with ddpmon.phase(…)` around the"
            " model's call to separate them.",
            cost=found,
        )
    else:
        yield moment.finding(facts, world.ranks, "other", beside=beside, cost=found)


@Kind(
    "warn",
    "Python's garbage collection costs {gc_ms:.1f} ms a step:| {share:.0%} of it|, up to {longest_ms:.0f} ms at once",
    "Call gc.freeze() after the model is built: the collector then skips all objects that already exist. {rarer}",
    gone="garbage collection no longer slows the steps down",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
    slows="garbage collection",
    remedy="Call `gc.freeze()` after setup. Call `gc.disable()`, and `gc.collect()` at fixed intervals of steps.",
)
def gc_pauses(moment: Moment) -> Iterator[Finding]:
    """Python's garbage collection slows all ranks down.

    The other ranks wait for the rank that collects, so the longest pause in each step counts. The finding lasts as long
    as collections continue.
    """
    world, gc_ms, means = moment.world, moment.world.gc_ms, moment.world.mean("gc_ms")
    found = lasting_cost(moment, gc_ms.max(axis=1))
    stays = moment.previous_finding is not None
    if found is None or not _goes_on(gc_ms.max(axis=1), RELEVANT.number_to_reach(stays) * found.step_ms):
        return
    same_time = found.cost_ms - float(means.mean()) if len(world.ranks) > 1 else 0.0
    rarer = (
        "All ranks already collect garbage at the same time; higher thresholds in gc.set_threshold make collections"
        " rarer."
    )
    if EXPLAINS.is_reached(same_time / found.cost_ms):
        rarer = (
            "Call gc.disable(), and gc.collect() on all ranks at once at fixed intervals of steps: ranks then wait"
            f" {same_time:.1f} ms a step less for each other."
        )
    facts = {
        "gc_ms": found.cost_ms,
        "longest_ms": float(gc_ms.max()),
        "steps_share": float((gc_ms > COLLECTS_MS).any(axis=1).mean()),
        "same_time_ms": same_time,
    }
    ranks = [world.ranks[column] for column in np.flatnonzero(means > EXPLAINS.enter * means.max())]
    yield moment.finding(facts, ranks, beside={"rarer": rarer}, cost=found)


def _goes_on(each_ms: Floats, least_ms: float) -> bool:
    """Return whether large garbage collections still occur, or small ones still matter.

    Args:
        each_ms: [S] Longest time of garbage collection on any rank in each step.
        least_ms: Smallest mean time per step, in ms, at which collections matter.

    """
    large = np.flatnonzero(each_ms >= LARGE_COLLECTION_SHARE * np.partition(each_ms, -2)[-2])
    return goes_on(large, len(each_ms) - 1) or bool(recurring_mean(each_ms[large[-1] + 1 :]) >= least_ms)
