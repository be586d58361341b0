"""All ranks wait for data."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("data_bound", subject="world", gone="data keeps up again", by_cost=True, slows="waiting for data")
