"""What kinds that are about ranks' own time have in common."""

from __future__ import annotations

from typing import Protocol

from ddpmon.analysis.evidence import Evidence


class MayBeForward(Protocol):
    """Facts of a finding about a phase."""

    @property
    def may_be_forward(self) -> bool:
        """What `forward_may_be` says of it."""


def forward_may_be(phase: str, evidence: Evidence) -> bool:
    """Whether time of this phase may be forward's, because forward is not measured and counts as other."""
    return phase == "other" and "forward" in evidence.unmeasured


def caveat(facts: MayBeForward, advice: str) -> str:
    """The advice, with what is to be known first where the time may be forward's."""
    first = "Forward is not measured here and counts as other: it may be that. " if facts.may_be_forward else ""
    return first + advice
