"""Records of steps were lost on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import counted, named_ranks

HARMFUL = Threshold(
    0.01,
    of="share of the records of steps that were lost",
    why="A judgement: fewer change no mean that people could read.",
)


@dataclass(frozen=True)
class TelemetryLost:
    """How many of all."""

    lost: int
    share: float
    read: int = for_words()
    damaged: bool = for_words()
    """The recording is."""
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[TelemetryLost]]:
    """Report lost records, with the ranks that lost them unless all ranks did."""
    evidence = moment.evidence
    if evidence.lost:
        share = evidence.lost / (evidence.lost + evidence.records)
        facts = TelemetryLost(evidence.lost, share, evidence.records, evidence.damaged, evidence.world_size)
        ranks = evidence.lost_ranks if len(evidence.lost_ranks) < evidence.world_size else ()
        yield Detection(KIND, "warn" if HARMFUL.reached(share) else "info", facts, ranks)


def words(detection: Detection[TelemetryLost]) -> Words:
    """How many."""
    facts = detection.facts
    if facts.damaged:
        made = counted(facts.read + facts.lost, "record")
        lead = "recording damaged:"
        return Words(f"{lead} {facts.read:,} of about {made} of steps could be read", lead=lead)
    ranks, were = detection.ranks, "was" if facts.lost == 1 else "were"
    of = f" of {named_ranks(ranks, facts.world_size)}" if ranks else ""
    return Words(
        f"{counted(facts.lost, 'record of a step', 'records of steps')}{of} {were} lost ({facts.share:.1%});"
        " the report leaves those steps out"
    )


KIND = Kind("telemetry_lost", subject="world", gone="", words=words, detect=detect)
