"""A loss is not a number any more: on which ranks first, and since which step."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Names the ranks of the first such step.

    Gradients that are not finite reach every rank in that step's all-reduce, and their losses follow a step later.
    """
    losses, world_size = sorted(moment.evidence.bad_losses, key=lambda loss: loss.rank), moment.evidence.world_size
    if not losses:
        return
    first = min(loss.step for loss in losses)
    began = [loss for loss in losses if loss.step == first]
    ranks, value = [loss.rank for loss in began], " or ".join(sorted({str(loss.value) for loss in began}))
    advice = "Stop and look at that step's batch and learning rate; gradients that are not finite reach every rank."
    if len(ranks) == world_size > 1:
        advice = (
            "Every rank at once: look at the learning rate, the precision (fp16 without loss scaling) and the model."
        )
    words = Words(f"loss is {value} on {named_ranks(ranks, world_size)} since step {first:,}", advice)
    evidence = {"value": value, "first_steps": {str(loss.rank): loss.step for loss in losses}}
    yield KIND.finding("critical", words, ranks, evidence=evidence, since_step=first)


KIND = Kind("loss_not_finite", detect=detect)
