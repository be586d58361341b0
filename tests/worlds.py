"""Made-up step records of synchronous training, whose right answer is known."""

import numpy as np

from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.table import HAS_LOSS, PHASE_FIELDS, ROW, Rows, steps_of
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.messages import SYNC_GRADIENTS

OWN = (2.0, 8.0, 15.0, 1.0, 1.0)
"""Milliseconds of data, forward, backward, optimizer, other in a step where nothing is wrong."""
MIB = 1 << 20


def own_times(steps, ranks, *, noise=0.0, seed=0):
    """[steps, ranks, 5] ms, with multiplicative noise."""
    rng = np.random.default_rng(seed)
    return np.array(OWN) * (1 + noise * np.abs(rng.standard_normal((steps, ranks, 5))))


def rows(own, *, transfer=6.0, samples=64, tokens=0, loss=None, first=2, start_us=1_000_000):
    """[S, R] rows of a world that leaves each gradient synchronisation `transfer` ms after the last arrival.

    own: [S, R, 5] ms. loss: [S, R] or None. samples, tokens: a number, one per rank, or all. transfer: or one per step.
    """
    own_us = np.round(own * 1000).astype(np.int64)
    arrivals = own_us.sum(axis=2)
    lengths = arrivals.max(axis=1) + (np.broadcast_to(transfer, len(own)) * 1000).astype(np.int64)
    assert 0 <= own_us.min(initial=0) <= lengths.max(initial=0) < 1 << 32, "what no row can hold"
    table = np.zeros(arrivals.shape, ROW)
    table["step"] = first + np.arange(len(own))[:, None]
    table["end_us"] = (start_us + np.cumsum(lengths))[:, None]
    table["length_us"] = lengths[:, None]
    for place, phase in enumerate(PHASE_FIELDS):
        table[phase] = own_us[..., place]
    if loss is not None:
        table["loss"], table["has"] = loss, HAS_LOSS
    table["samples"], table["tokens"], table["backwards"] = samples, tokens, 1
    table["sync_count"] = 1
    sync = table["syncs"][..., 0]
    sync["kind"], sync["arrival_us"], sync["end_us"], sync["payload_bytes"] = (
        SYNC_GRADIENTS, arrivals, lengths[:, None], MIB,
    )  # fmt: skip
    return table


def records(own, **more):
    """{rank: [Step]} of the same, as ranks send them. more: as in `rows`."""
    table = rows(own, **more)
    return {rank: steps_of(table[:, rank]) for rank in range(own.shape[1])}


def world_with(own, **more):
    """The World of the same. more: as in `rows`."""
    return split_of(rows(own, **more))


def split_of(table):
    """The World of a table of rows, [S, R]."""
    return split_waits(Rows.of_table(tuple(range(table.shape[1])), table, {}))


def world_of(told):
    """The World of records of all ranks, lined up as a hub does."""
    aligner = Aligner(len(told))
    for rank, steps in told.items():
        aligner.add(rank, steps)
    (together,) = aligner.pop_complete(final=True)
    return split_waits(together)
