"""What kinds that are about ranks' own time have in common."""

from __future__ import annotations

from typing import Protocol

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.threshold import Threshold

SOME_STEPS = 1
"""Steps of the window without which nothing is looked for; how long a stretch or a rhythm must be is asked there."""
WORTH = Threshold(
    1.02,
    of="times as fast if the rank were as fast as its peers",
    why="A judgement: less is shown, but no reason to act. Gains are predicted to within 1.1% in nine of ten runs with"
    " steps of 100 ms (benchmarks/diagnosis.py).",
    stay=1.01,
)


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
