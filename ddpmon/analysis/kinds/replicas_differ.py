"""Replicas of a model are not the same."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("replicas_differ", subject="world", gone="")
