"""A different rank is late at each step."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "moving_straggler",
    subject="world",
    gone="ranks no longer take turns in being late",
    by_cost=True,
    changes_level=True,
    slows="waiting for ranks that are late in turn",
)
