"""A model is trained in evaluation mode, after it was trained in training mode."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Finding

UPDATES = Threshold(
    20,
    of="backwards in a row that reduce gradients of a model in evaluation mode, after some in training mode",
    why="A judgement: attacks on a model and penalties of its gradients take some between training steps.",
)


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it for DDP models with torch's dropout or BatchNorm: in others the mode changes nothing that is known."""
    updates, world_size = moment.evidence.held_out, moment.evidence.world_size
    ranks = sorted(rank for rank, count in updates.items() if UPDATES.reached(count))
    if not ranks:
        return
    held, last = moment.held_one(KIND), int(moment.world.step[-1])
    since = held.since_step if held and held.since_step else max(1, last - max(updates[rank] for rank in ranks) + 1)
    train = "trains" if len(ranks) == 1 else "train"
    words = Words(
        f"{named_ranks(ranks, world_size)} {train} in evaluation mode since step {since:,}",
        "model.eval() was called and model.train() was not called after it: dropout is off, and BatchNorm no longer"
        " follows the data. Call model.train() at the beginning of each epoch, on the model that is trained. If these"
        " layers are frozen on purpose, for fine-tuning, this is meant.",
    )
    counts = {str(rank): updates[rank] for rank in ranks}
    yield KIND.finding("warn", words, ranks, evidence={"updates": counts}, since_step=since)


KIND = Kind("trains_in_eval", gone="the model is trained in training mode again", detect=detect, fewest_steps=1)
