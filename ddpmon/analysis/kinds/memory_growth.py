"""Memory of processes grows and grows."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.messages import DeviceMark

KIND = Kind(
    "memory_growth",
    subject="world",
    gone="memory no longer grows",
    device=DeviceMark("memory grows", ["mem GiB"], 1),
)
