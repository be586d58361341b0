"""A change in the steps of a rank, or of all ranks, that chance does not explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ddpmon.analysis.slowness.rotation_test import Turns

Evidence = Literal["change", "long_steps", "start", "turns"]
"""A lasting change; single long steps of which this rank has too many; the mean since the start; ranks that stand apart
from all others in turn."""


@dataclass(frozen=True)
class Signal:
    """A change that chance does not explain."""

    rank: int | None
    """None: all ranks, compared with their own past."""
    series: str
    """"own" (own time), a phase, or "transfer". Of a rank's phases: less their usual share of its own time, so that a
    delay in one phase is a change down in the others."""
    step: int
    """Step number with which it began, estimated to about the length of the contrast that found it."""
    up: bool
    """Slower; otherwise faster."""
    z: float
    """Largest strength so far, as a value of the standard normal distribution."""
    evidence: Evidence
    found: int
    """Step number after which it was found first."""
    held: int
    """Step number after which it was found last."""
    turns: Turns | None = None
    """Turns of ranks that stand apart in turn."""
