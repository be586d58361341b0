"""A rank is late every so many steps."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "periodic_straggler",
    subject="rank",
    gone="rank {ranks} keeps its rhythm no longer",
    by_cost=True,
    slows="rank {rank}'s pauses",
)
