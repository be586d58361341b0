"""A loss is not a number any more."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("loss_not_finite", subject="world", gone="")
