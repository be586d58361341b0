"""Weights are updated with gradients that were never reduced."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind("gradients_not_synchronised", subject="world", gone="")
