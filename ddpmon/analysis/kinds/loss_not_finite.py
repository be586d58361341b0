"""A loss is not a number any more: on which ranks first, and since which step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.words import named_ranks


@dataclass(frozen=True)
class LossNotFinite:
    """What the loss is, and when each rank's first was."""

    value: str
    first_steps: dict[str, int]
    """By rank."""
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[LossNotFinite]]:
    """Names the ranks of the first such step.

    Gradients that are not finite reach every rank in that step's all-reduce, and their losses follow a step later.
    """
    losses = sorted(moment.evidence.bad_losses, key=lambda loss: loss.rank)
    if not losses:
        return
    first = min(loss.step for loss in losses)
    began = [loss for loss in losses if loss.step == first]
    facts = LossNotFinite(
        value=" or ".join(sorted({str(loss.value) for loss in began})),
        first_steps={str(loss.rank): loss.step for loss in losses},
        world_size=moment.evidence.world_size,
    )
    yield Detection(KIND, "critical", facts, [loss.rank for loss in began], since_step=first)


def words(detection: Detection[LossNotFinite]) -> Words:
    """On whom, since when."""
    ranks, world_size = detection.ranks, detection.facts.world_size
    everyone = len(ranks) == world_size > 1
    return Words(
        f"loss is {detection.facts.value} on {named_ranks(ranks, world_size)} since step {detection.since_step:,}",
        "Every rank at once: look at the learning rate, the precision (fp16 without loss scaling) and the model."
        if everyone
        else "Stop and look at that step's batch and learning rate; gradients that are not finite reach every rank.",
    )


KIND = Kind("loss_not_finite", subject="world", gone="", words=words, detect=detect)
