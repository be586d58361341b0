"""Replicas of a model are not the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.processes.parallelism import meant_to_differ, trains_apart, with_ddp
from ddpmon.analysis.words import named_ranks


@dataclass(frozen=True)
class ReplicasDiffer:
    """Which model, and how many of its replicas were compared."""

    model: int
    same_at_step: int | None
    compared: int
    world_size: int = for_words()
    without_ddp: bool = False
    """Nothing keeps them the same: no DDP, and no collective that moves as much as the model has."""


def detect(moment: Moment) -> Iterator[Detection[ReplicasDiffer]]:
    """Yield what digests showed, unless ranks are meant to differ."""
    one, parallelism = moment.evidence.difference, moment.evidence.parallelism
    if one is None or meant_to_differ(parallelism):
        return
    world_size, apart = moment.evidence.world_size, trains_apart(parallelism)
    if with_ddp(parallelism) or (apart and one.compared == world_size):  # ranks start one after the other
        facts = ReplicasDiffer(one.model, one.same_at, one.compared, world_size, apart)
        yield Detection(KIND, "critical", facts, one.ranks, since_step=one.step)


def words(detection: Detection[ReplicasDiffer]) -> Words:
    """Whose weights are others, since when."""
    facts, ranks, since = detection.facts, detection.ranks, f"since step {detection.since_step:,}"
    if facts.without_ddp:
        return Words(
            f"{_each(ranks, facts.world_size)} a model of its own: no DDP, no gradient all-reduce",
            f"Weights differ {since} at the latest, and nothing keeps them the same. Wrap the model in"
            " DistributedDataParallel after init_process_group, and give each rank its part of the data"
            " (DistributedSampler). If these are trainings of their own on purpose, start each as a run of its own.",
        )
    which = f" of model {facts.model}" if facts.model else ""
    if len(ranks) == facts.compared:
        text = f"the weights{which} of {named_ranks(ranks, facts.world_size)} differ {since}"
    else:
        who = f"{named_ranks(ranks, facts.world_size)} {'has' if len(ranks) == 1 else 'have'}"
        text = f"{who} other weights{which} than the rest {since}"
    return Words(
        text,
        "DDP keeps replicas bit-identical. Look for what changes weights on some ranks alone: an optimizer stepped"
        " under a condition, a checkpoint loaded by one rank, clipping or averaging done outside of DDP."
        " If ranks average their weights on purpose only now and then (local SGD), this is meant.",
    )


def _each(ranks: Sequence[int], world_size: int) -> str:
    if len(ranks) == world_size:
        return "each rank trains"
    named = named_ranks(ranks, world_size)
    return f"{named} trains" if len(ranks) == 1 else f"each of {named} trains"


KIND = Kind("replicas_differ", subject="world", gone="", words=words, detect=detect)
