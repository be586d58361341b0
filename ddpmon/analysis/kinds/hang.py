"""No rank comes on: who did not arrive, and what the others wait in."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("hang", subject="world", gone="", explains="stalled")
