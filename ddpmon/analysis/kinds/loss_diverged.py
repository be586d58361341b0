"""A rank's loss is far from the others' for the whole window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.loss_spiked import JUMP, TIMES
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

BLOCK_STEPS = 10
"""Steps whose losses are taken as one value, because those of neighbours are alike; the window has four or more."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Names the ranks that are far away, half of all at most.

    A rank's mean must be twice the others' or more, and far beyond its standard error: replicas have the same weights,
    and shards dealt out at random do not differ by as much.
    """
    world, held = moment.world, moment.held_one(KIND)
    if len(world.ranks) < 2 or not world.has_loss.all() or not np.isfinite(world.loss).all():
        return
    begins = np.arange(len(world) // BLOCK_STEPS) * BLOCK_STEPS
    lengths = np.diff(begins, append=len(world))
    blocks = np.add.reduceat(world.loss, begins, axis=0) / lengths[:, None]
    means = blocks.mean(axis=0)
    error = float(np.median(blocks.std(axis=0, ddof=1))) / np.sqrt(len(blocks))
    middle = float(means.min()) if len(means) == 2 else float(np.median(means))
    away, stays = np.abs(means - middle), held is not None
    far = (away > JUMP.asked(stays) * error) & (away > (TIMES.asked(stays) - 1) * abs(middle)) & (away > 1e-6)
    if not far.any() or far.sum() > len(means) / 2:
        return
    ranks = [world.ranks[column] for column in np.flatnonzero(far).tolist()]
    loss, many = float(means[far][away[far].argmax()]), len(ranks) > 1
    lead = f"{named_ranks(ranks, len(world.ranks))}:"
    words = Words(
        fitting(f"{lead} loss {loss:.4g}, the others' {middle:.4g}", ", for the whole window"),
        "Replicas have the same weights, so it is the data or the loss: look at which samples and labels"
        f" {lead[:-1]} {'get' if many else 'gets'}, and at how {'their' if many else 'its'} loss is averaged.",
        lead=lead,
    )
    since = held.since_step if held else int(world.step[0])
    evidence = {"loss": loss, "median_loss": middle, "error": error}
    yield KIND.finding("warn", words, ranks, evidence=evidence, since_step=since)


KIND = Kind(
    "loss_diverged",
    gone="losses of all ranks are alike again",
    detect=detect,
    fewest_steps=FEWEST,
    by_cost=True,
)
