"""A rank failed: the first cause, and who failed alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.processes import failures


@dataclass(frozen=True)
class RankFailed:
    """Which one and why, how many ranks there are, and how much memory each last held."""

    rank: int = for_words()
    """The first."""
    cause: str = for_words()
    out_of: failures.OutOf = for_words()
    world_size: int = for_words()
    resident_bytes: Mapping[int, int] = for_words()


def detect(moment: Moment) -> Iterator[Detection[RankFailed]]:
    """The first failure of the attempt that runs, or ran last."""
    evidence = moment.evidence
    if evidence.failed:
        resident = {one.rank: one.rss_bytes[-1] for one in evidence.memory if one.rss_bytes}
        first = evidence.failed
        facts = RankFailed(first.rank, first.cause, first.out_of, evidence.world_size, resident)
        yield Detection(KIND, "critical", facts, first.ranks)


def words(detection: Detection[RankFailed]) -> Words:
    """What it failed of; what to do only where it ran out of memory."""
    facts = detection.facts
    text = failures.headline(detection.ranks, facts.cause, facts.world_size)
    advice = failures.advice(facts.rank, facts.out_of, facts.resident_bytes)
    return Words(text, advice, lead=failures.who_failed(detection.ranks, facts.world_size))


KIND = Kind("rank_failed", subject="rank", gone="", words=words, detect=detect, is_announced=False, explains="failed")
