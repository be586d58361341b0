"""A rank's loss is far from the others' for the whole window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, STAYS, since
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks

AWAY = Threshold(
    1.0,
    of="times the others' loss by which a rank's differs from it, mean of the window",
    why="A judgement: replicas have the same weights, and shards dealt out at random do not differ by as much.",
    keeps=STAYS,
)
SURE = Threshold(
    8.0,
    of="standard errors of a rank's mean loss by which it differs from the others'",
    why="A judgement: four blocks tell an error badly, and Student's t of three degrees exceeds 8 in 0.4% of cases.",
    keeps=STAYS,
)
BLOCK_STEPS = 10
"""Steps whose losses are taken as one value, because those of neighbours are alike; the window has four or more."""


@dataclass(frozen=True)
class LossDiverged:
    """The loss that is farthest away, and the others'."""

    loss: float
    median_loss: float
    error: float
    """Standard error of a rank's mean."""
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[LossDiverged]]:
    """Names the ranks that are far away, half of all at most."""
    world, held = moment.world, moment.held_one(KIND)
    if len(world.ranks) < 2 or not world.has_loss.all() or not np.isfinite(world.loss).all():
        return
    begins = np.arange(len(world) // BLOCK_STEPS) * BLOCK_STEPS
    lengths = np.diff(begins, append=len(world))
    blocks = np.add.reduceat(world.loss, begins, axis=0) / lengths[:, None]
    means = blocks.mean(axis=0)
    error = float(np.median(blocks.std(axis=0, ddof=1))) / np.sqrt(len(blocks))
    middle = float(means.min()) if len(means) == 2 else float(np.median(means))
    away = means - middle
    stays = held is not None
    far = (np.abs(away) > SURE.asked(stays) * error) & (np.abs(away) > AWAY.asked(stays) * abs(middle))
    far &= np.abs(away) > 1e-6
    if not far.any() or far.sum() > len(means) / 2:
        return
    ranks = [world.ranks[column] for column in np.flatnonzero(far).tolist()]
    value = float(means[far][np.abs(away[far]).argmax()])
    facts = LossDiverged(value, middle, error, len(world.ranks))
    yield Detection(KIND, "warn", facts, ranks, None, since(world, held))


def words(detection: Detection[LossDiverged]) -> Words:
    """Whose, and how far."""
    facts = detection.facts
    many = len(detection.ranks) > 1
    who = named_ranks(detection.ranks, facts.world_size)
    lead = f"{who}:"
    return Words(
        fitting(f"{lead} loss {facts.loss:.4g}, the others' {facts.median_loss:.4g}", ", for the whole window"),
        "Replicas have the same weights, so it is the data or the loss: look at which samples and labels"
        f" {who} {'get' if many else 'gets'}, and at how {'their' if many else 'its'} loss is averaged.",
        lead=lead,
    )


KIND = Kind(
    "loss_diverged",
    subject="world",
    gone="losses of all ranks are alike again",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
)
