"""The transfer between ranks holds all of them back."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "communication_bound",
    subject="world",
    gone="communication no longer holds the step back",
    by_cost=True,
    slows="waiting for the transfer between ranks",
)
