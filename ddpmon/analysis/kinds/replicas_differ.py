"""Replicas of a model are not the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.words import rank_list


@dataclass(frozen=True)
class ReplicasDiffer:
    """Which model, and how many of its replicas were compared."""

    model: int
    same_at_step: int | None
    compared: int
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[ReplicasDiffer]]:
    """Whatever digests showed."""
    one = moment.evidence.difference
    if one is not None:
        facts = ReplicasDiffer(one.model, one.same_at, one.compared, moment.evidence.world_size)
        yield Detection(KIND, "critical", facts, one.ranks, since_step=one.step)


def words(detection: Detection[ReplicasDiffer]) -> Words:
    """Whose weights are others, since when."""
    facts, ranks, since = detection.facts, detection.ranks, f"since step {detection.since_step:,}"
    which = f" of model {facts.model}" if facts.model else ""
    if len(ranks) == facts.compared:
        text = f"the weights{which} of ranks {rank_list(ranks, facts.world_size)} differ {since}"
    else:
        who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {rank_list(ranks, facts.world_size)} have"
        text = f"{who} other weights{which} than the rest {since}"
    return Words(
        text,
        "DDP keeps replicas bit-identical. Look for what changes weights on some ranks alone: an optimizer stepped"
        " under a condition, a checkpoint loaded by one rank, clipping or averaging done outside of DDP."
        " If ranks average their weights on purpose only now and then (local SGD), this is meant.",
    )


KIND = Kind("replicas_differ", subject="world", gone="", words=words, detect=detect)
