"""Ranks of a host wait for a core."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.messages import DeviceMark

KIND = Kind(
    "cpu_starved",
    subject="host",
    gone="ranks get their cores again",
    slows="waiting for cores",
    device=DeviceMark("no core free", ["no core"], 2),
)
