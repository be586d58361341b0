"""Weights are updated with gradients that were never reduced."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds import replicas_differ
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.parallelism import meant_to_differ
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Finding

FEWEST_STEPS = Threshold(
    3,
    of="optimizer steps of a rank with gradients that were never reduced",
    why="A judgement: a script may warm its optimizer up, or test it, with a step or two.",
)


def detect(moment: Moment) -> Iterator[Finding]:
    """All ranks whose count grew in the last steps; none if there are none, or if it did their replicas no harm.

    The count is no proof: a script may average gradients by itself, or train a further model beside the one in DDP.
    That replicas differ is, so the finding is critical with it alone.
    """
    evidence, different, same = moment.evidence, moment.evidence.difference, moment.evidence.same
    grows = [
        one for one in evidence.unsynchronised if FEWEST_STEPS.reached(one.count) and one.steps - one.last_at < FEWEST
    ]
    if not grows or meant_to_differ(evidence.parallelism):
        return
    ranks, world_size = sorted(one.rank for one in grows), evidence.world_size
    who = "every rank" if len(ranks) == world_size > 1 else named_ranks(ranks, world_size)
    text = f"{who} updated weights {max(one.count for one in grows):,} times with gradients DDP never reduced"
    counts = {"optimizer_steps": {str(one.rank): one.count for one in grows}}
    if different is not None and set(ranks) & set(different.ranks):
        words = Words(
            f"{text}; replicas differ",
            "Call the DDP model itself in training (not model.module), and let the last backward before each"
            " optimizer step run outside of no_sync; without that, every rank trains a model of its own.",
        )
        known = {"replicas_differ": list(different.ranks), "model": different.model, "compared": different.compared}
        known = {**counts, "same_at_step": different.same_at, **known}
        yield KIND.finding("critical", words, ranks, evidence=known, since_step=different.step)
    elif same is None or not (same.updates or same.step >= max(one.last_at for one in grows)):
        words = Words(
            text,
            "Nothing shows yet that replicas differ. If another model than the one in DDP is trained, or the script"
            " averages gradients by itself, this is meant; else call the DDP model itself in training.",
        )
        yield KIND.finding("info", words, ranks, evidence={**counts, "same_at_step": same.step if same else None})


KIND = Kind("gradients_not_synchronised", detect=detect, outdoes=(replicas_differ.KIND.name,))
