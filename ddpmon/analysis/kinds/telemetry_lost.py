"""Records of steps were lost on their way."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import RELEVANT
from ddpmon.analysis.words import counted, named_ranks
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """Report lost records, with the ranks that lost them unless all did; many are a warning."""
    evidence, lost = moment.evidence, moment.evidence.lost
    if not lost:
        return
    share, world_size = lost / (lost + evidence.records), evidence.world_size
    ranks = evidence.lost_ranks if len(evidence.lost_ranks) < world_size else ()
    of = f" of {named_ranks(ranks, world_size)}" if ranks else ""
    words = Words(
        f"{counted(lost, 'record of a step', 'records of steps')}{of} {'was' if lost == 1 else 'were'} lost"
        f" ({share:.1%}); the report leaves those steps out"
    )
    if evidence.damaged:
        lead = "recording damaged:"
        made = counted(evidence.records + lost, "record")
        words = Words(f"{lead} {evidence.records:,} of about {made} of steps could be read", lead=lead)
    known = {"lost": lost, "share": share}
    yield KIND.finding("warn" if RELEVANT.reached(share) else "info", words, ranks, evidence=known)


KIND = Kind("telemetry_lost", detect=detect)
