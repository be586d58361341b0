"""Weights are updated with gradients that were never reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds import replicas_differ
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.processes.parallelism import meant_to_differ
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import named_ranks

AGAIN_STEPS = Threshold(
    100,
    of="steps of a rank since its last with gradients that were never reduced",
    why="A judgement: a rank that trained so long without another such step has come right.",
)
FEWEST_STEPS = Threshold(
    3,
    of="optimizer steps of a rank with gradients that were never reduced",
    why="A judgement: a script may warm its optimizer up, or test it, with a step or two.",
)


@dataclass(frozen=True)
class GradientsNotSynchronised:
    """How often each rank did so, and whether replicas differ for it."""

    optimizer_steps: dict[str, int]
    """By rank."""
    same_at_step: int | None
    replicas_differ: list[int] | None = None
    model: int | None = None
    compared: int | None = None
    world_size: int = for_words(0)


def detect(moment: Moment) -> Iterator[Detection[GradientsNotSynchronised]]:
    """All ranks whose count still grows; none if there are none, or if it did their replicas no harm.

    The count is no proof: a script may average gradients by itself, or train a further model beside the one in DDP.
    That replicas differ is, so the finding is critical with it alone.
    """
    evidence = moment.evidence
    grows = [
        one
        for one in evidence.unsynchronised
        if FEWEST_STEPS.reached(one.count) and not AGAIN_STEPS.reached(one.steps - one.last_at)
    ]
    if not grows or meant_to_differ(evidence.parallelism):
        return
    ranks = sorted(one.rank for one in grows)
    counts = {str(one.rank): one.count for one in grows}
    different, same, world_size = evidence.difference, evidence.same, evidence.world_size
    if different is not None and set(ranks) & set(different.ranks):
        facts = GradientsNotSynchronised(
            counts, different.same_at, list(different.ranks), different.model, different.compared, world_size
        )
        yield Detection(KIND, "critical", facts, ranks, since_step=different.step)
    elif same is None or not (same.updates or same.step >= max(one.last_at for one in grows)):
        facts = GradientsNotSynchronised(counts, same.step if same else None, world_size=world_size)
        yield Detection(KIND, "info", facts, ranks)


def words(detection: Detection[GradientsNotSynchronised]) -> Words:
    """Who did so how often."""
    facts, ranks = detection.facts, detection.ranks
    who = "every rank" if len(ranks) == facts.world_size > 1 else named_ranks(ranks, facts.world_size)
    most = max(facts.optimizer_steps.values())
    text = f"{who} updated weights {most:,} times with gradients DDP never reduced"
    if facts.replicas_differ is not None:
        return Words(
            f"{text}; replicas differ",
            "Call the DDP model itself in training (not model.module), and let the last backward before each"
            " optimizer step run outside of no_sync; without that, every rank trains a model of its own.",
        )
    return Words(
        text,
        "Nothing shows yet that replicas differ. If another model than the one in DDP is trained, or the script"
        " averages gradients by itself, this is meant; else call the DDP model itself in training.",
    )


KIND = Kind(
    "gradients_not_synchronised",
    subject="world",
    gone="",
    words=words,
    detect=detect,
    outdoes=(replicas_differ.KIND.name,),
)
