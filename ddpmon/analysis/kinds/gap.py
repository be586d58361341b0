"""Time goes before a forward, or before its backward, outside of any DataLoader."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("gap", subject="world", gone="", by_cost=True)
