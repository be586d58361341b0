"""Losses that are not finite: on which ranks first, and since which step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpmon.analysis.verdict import rank_list
from ddpmon.messages import Finding


@dataclass(frozen=True)
class Loss:
    """A rank's first loss of the run that was not finite."""

    rank: int
    step: int
    value: float


def loss_not_finite(told: Sequence[Loss], world_size: int) -> Finding | None:
    """Names the ranks of the first such step; None without any.

    Gradients that are not finite reach every rank in that step's all-reduce, and their losses follow a step later.
    """
    if not told:
        return None
    first = min(loss.step for loss in told)
    began = sorted((loss for loss in told if loss.step == first), key=lambda loss: loss.rank)
    ranks = [loss.rank for loss in began]
    values = " or ".join(sorted({str(loss.value) for loss in began}))
    if len(ranks) == world_size > 1:
        who = f"all {world_size} ranks"
    else:
        who = f"rank{'s' if len(ranks) > 1 else ''} {rank_list(ranks, world_size)}"
    every = sorted(told, key=lambda loss: loss.rank)
    return Finding(
        "loss_not_finite",
        "critical",
        f"loss is {values} on {who} since step {first:,}",
        ranks,
        since_step=first,
        evidence={"value": values, "first_steps": {str(loss.rank): loss.step for loss in every}},
        advice=(
            "Every rank at once: look at the learning rate, the precision (fp16 without loss scaling) and the model."
            if len(ranks) == world_size > 1
            else "Stop and look at that step's batch and learning rate; gradients that are not finite reach every rank."
        ),
    )
