"""Steps are so small that most of them is what it takes to take one."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("overhead_bound", subject="world", gone="", by_cost=True)
