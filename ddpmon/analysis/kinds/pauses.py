"""The run spends much of its time on something else than training."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("pauses", subject="activity", gone="")
