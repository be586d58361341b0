"""A rank is late for a stretch of steps, with as much work as the others."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "straggler",
    subject="rank",
    family="late",
    gone="rank {ranks} keeps up again",
    by_cost=True,
    changes_level=True,
    slows="rank {rank}'s {phase}",
)
