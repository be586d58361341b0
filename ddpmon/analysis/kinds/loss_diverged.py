"""A rank's loss is far from the others'."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("loss_diverged", subject="world", gone="losses of all ranks are alike again", by_cost=True)
