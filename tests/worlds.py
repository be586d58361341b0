"""Made-up step records of synchronous training, whose right answer is known."""

import numpy as np

from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.waits import split
from ddpmon.messages import SYNC_GRADIENTS, Step, Sync

OWN = (2.0, 8.0, 15.0, 1.0, 1.0)
"""Milliseconds of data, forward, backward, optimizer, other in a step where nothing is wrong."""
MIB = 1 << 20


def own_times(steps, ranks, *, noise=0.0, seed=0):
    """[steps, ranks, 5] ms, with multiplicative noise."""
    rng = np.random.default_rng(seed)
    return np.array(OWN) * (1 + noise * np.abs(rng.standard_normal((steps, ranks, 5))))


def records(own, *, transfer=6.0, samples=64, loss=None, first=2, start_us=1_000_000):
    """{rank: [Step]} of a world that leaves each gradient synchronisation `transfer` ms after the last arrival.

    own: [S, R, 5] ms. loss: [S, R] or None. samples: a number or one per rank; transfer: or one per step.
    """
    count, ranks, _ = own.shape
    own_us = np.round(own * 1000).astype(int)
    arrivals = own_us.sum(axis=2)
    lengths = arrivals.max(axis=1) + (np.broadcast_to(transfer, count) * 1000).astype(int)
    ends = start_us + np.cumsum(lengths)
    each_step = list(zip(range(first, first + count), ends.tolist(), lengths.tolist(), strict=True))
    told = {}
    for rank, batch in enumerate(np.broadcast_to(samples, ranks).tolist()):
        losses = [None] * count if loss is None else np.asarray(loss, float)[:, rank].tolist()
        mine = zip(each_step, arrivals[:, rank].tolist(), own_us[:, rank].tolist(), losses, strict=True)
        told[rank] = [
            Step(number, end, length, *phases, [Sync(SYNC_GRADIENTS, arrival, length, MIB)], value, int(batch))
            for (number, end, length), arrival, phases, value in mine
        ]
    return told


def world_of(told):
    """The World of records of all ranks."""
    aligner = Aligner(len(told))
    for rank, steps in told.items():
        aligner.add(rank, steps)
    (rows,) = aligner.take(final=True)
    return split(rows)
