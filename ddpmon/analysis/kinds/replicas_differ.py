"""Replicas of a model are not the same."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import meant_to_differ, trains_apart, with_ddp
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield what digests showed, unless ranks are meant to differ."""
    one, parallelism = moment.evidence.difference, moment.evidence.parallelism
    if one is None or meant_to_differ(parallelism):
        return
    world_size, apart = moment.evidence.world_size, trains_apart(parallelism)
    # Ranks start one after the other.
    if not with_ddp(parallelism) and not (apart and one.compared == world_size):
        return
    who, since = named_ranks(one.ranks, world_size), f"since step {one.step:,}"
    which = f" of model {one.model}" if one.model else ""
    text = f"{who} {'has' if len(one.ranks) == 1 else 'have'} other weights{which} than the rest {since}"
    if len(one.ranks) == one.compared:
        text = f"the weights{which} of {who} differ {since}"
    advice = (
        "DDP keeps replicas bit-identical. Look for what changes weights on some ranks alone: an optimizer stepped"
        " under a condition, a checkpoint loaded by one rank, clipping or averaging done outside of DDP."
        " If ranks average their weights on purpose only now and then (local SGD), this is meant."
    )
    if apart:
        each = f"{who} trains" if len(one.ranks) == 1 else f"each of {who} trains"
        each = "each rank trains" if len(one.ranks) == world_size else each
        text = f"{each} a model of its own: no DDP, no gradient all-reduce"
        advice = (
            f"Weights differ {since} at the latest, and nothing keeps them the same. Wrap the model in"
            " DistributedDataParallel after init_process_group, and give each rank its part of the data"
            " (DistributedSampler). If these are trainings of their own on purpose, start each as a run of its own."
        )
    yield KIND.finding(
        "critical",
        Words(text, advice),
        one.ranks,
        evidence={"model": one.model, "same_at_step": one.same_at, "compared": one.compared},
        beside={"without_ddp": apart or None},
        since_step=one.step,
    )


KIND = Kind("replicas_differ", detect=detect)
