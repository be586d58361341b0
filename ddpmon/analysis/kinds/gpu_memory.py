"""A GPU is nearly full."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.messages import DeviceMark

KIND = Kind(
    "gpu_memory",
    subject="world",
    gone="GPU memory is no longer nearly full",
    device=DeviceMark("GPU nearly full", ["gpu GiB"], 3),
)
