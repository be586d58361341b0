"""A rank is late because it has more samples or tokens than the others."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "load_imbalance",
    subject="rank",
    family="late",
    gone="rank {ranks} keeps up again",
    by_cost=True,
    changes_level=True,
    slows="rank {rank}'s larger share of the work",
)
