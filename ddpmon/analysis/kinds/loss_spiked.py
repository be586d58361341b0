"""The loss jumped up."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("loss_spiked", subject="world", gone="", by_cost=True)
