"""Replicas of a model are not the same."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import meant_to_differ, with_ddp
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield what digests showed, unless ranks are meant to differ."""
    one, parallelism = moment.evidence.difference, moment.evidence.parallelism
    if one is None or meant_to_differ(parallelism) or not with_ddp(parallelism):
        return
    who, since = named_ranks(one.ranks, moment.evidence.world_size), f"since step {one.step:,}"
    if one.same_at is not None and one.step - one.same_at > 1:
        since = f"since a step between {one.same_at:,} and {one.step:,}"
    which = f" of model {one.model}" if one.model else ""
    text = f"{who} {'has' if len(one.ranks) == 1 else 'have'} other weights{which} than the rest {since}"
    if len(one.ranks) == one.compared:
        text = f"the weights{which} of {who} differ {since}"
    advice = (
        "DDP keeps replicas bit-identical. Look for what changes weights on some ranks alone: an optimizer stepped"
        " under a condition, a checkpoint loaded by one rank, clipping or averaging done outside of DDP."
        " If ranks average their weights on purpose only now and then (local SGD), this is meant."
    )
    yield KIND.finding(
        "critical",
        Words(text, advice),
        one.ranks,
        evidence={"model": one.model, "same_at_step": one.same_at, "compared": one.compared},
        since_step=one.step,
    )


KIND = Kind("replicas_differ", detect=detect)
