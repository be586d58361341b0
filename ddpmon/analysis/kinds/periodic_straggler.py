"""A rank is slow in one step of every so many."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.analysis.kinds.slow import Slow
from ddpmon.analysis.kinds.slow_words import GONE, words

KIND: Kind[Slow] = Kind(
    "periodic_straggler",
    subject="rank",
    gone=GONE,
    words=words,
    family="late",
    by_cost=True,
    slows="rank {rank}'s pauses",
)
