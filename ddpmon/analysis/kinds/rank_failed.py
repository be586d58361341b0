"""A rank failed: the first cause, and who failed alike."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("rank_failed", subject="rank", gone="", is_announced=False, explains="failed")
