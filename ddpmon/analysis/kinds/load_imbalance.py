"""A rank is slow because it has more samples or tokens than the others."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.analysis.kinds.slow import Slow, has_company
from ddpmon.analysis.kinds.slow_words import GONE, words

KIND: Kind[Slow] = Kind(
    "load_imbalance",
    subject="rank",
    gone=GONE,
    words=words,
    family="late",
    by_cost=True,
    changes_level=True,
    slows="rank {rank}'s larger share of the work",
    is_one_of_several=has_company,
)
