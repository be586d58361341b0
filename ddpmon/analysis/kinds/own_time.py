"""What kinds that are about ranks' own time have in common."""

from __future__ import annotations

from ddpmon.analysis.evidence import Evidence

FEWEST_STEPS = 1
"""Each of them asks for more by itself."""


def forward_may_be(phase: str, evidence: Evidence) -> bool:
    """Whether what is told of a phase may be forward's, because that is not measured and counts as other."""
    return phase == "other" and "forward" in evidence.unmeasured


def other_may_be_forward(advice: str) -> str:
    """The advice of a finding about other, where that is so."""
    return f"Forward is not measured here and counts as other: it may be that. {advice}".rstrip()
