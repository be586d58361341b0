"""Ranks leave synchronisations after the others."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "slow_link",
    subject="world",
    gone="rank {ranks} leaves synchronisations with the others again",
    by_cost=True,
    slows="rank {rank}'s slow link",
)
