"""Records of steps were lost on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Found, Kind, Moment, Words, for_words
from ddpmon.analysis.words import counted

HARMFUL = 0.01
"""Share of the records."""


@dataclass(frozen=True)
class TelemetryLost:
    """How many of all."""

    lost: int
    share: float
    read: int = for_words()
    damaged: bool = for_words()
    """The recording is."""


def detect(moment: Moment) -> Iterator[Found[TelemetryLost]]:
    """Any that were lost."""
    evidence = moment.evidence
    if evidence.lost:
        share = evidence.lost / (evidence.lost + evidence.records)
        facts = TelemetryLost(evidence.lost, share, evidence.records, evidence.damaged)
        yield Found(KIND, "warn" if share >= HARMFUL else "info", facts)


def words(found: Found[TelemetryLost]) -> Words:
    """How many."""
    facts = found.facts
    if facts.damaged:
        made = counted(facts.read + facts.lost, "record")
        return Words(f"recording damaged: {facts.read:,} of about {made} of steps could be read")
    were = "was" if facts.lost == 1 else "were"
    return Words(
        f"{counted(facts.lost, 'record of a step', 'records of steps')} {were} lost ({facts.share:.1%});"
        " the report leaves those steps out"
    )


KIND = Kind("telemetry_lost", subject="world", gone="", words=words, detect=detect)
