"""GPUs hold their clocks down."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.messages import DeviceMark

KIND = Kind(
    "gpu_throttled",
    subject="world",
    gone="no GPU holds its clocks down any more",
    slows="waiting for throttled GPUs",
    device=DeviceMark("throttled", ["°C", "MHz"], 4),
)
