"""Records of steps were lost on their way."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("telemetry_lost", subject="world", gone="")
