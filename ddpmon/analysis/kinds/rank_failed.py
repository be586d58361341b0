"""A rank failed: the first cause, and who failed alike."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes import failures
from ddpmon.messages import Finding


def detect(moment: Moment) -> Iterator[Finding]:
    """The first failure of the attempt that runs, or ran last; what to do where its cause is a known one."""
    evidence = moment.evidence
    if first := evidence.failed:
        resident = {one.rank: (one.rss_bytes, one.worker_bytes) for one in evidence.memory if one.rss_bytes}
        lead = failures.who_failed(first.ranks, evidence.world_size)
        words = Words(f"{lead} {first.cause}", failures.advice(first, resident), lead=lead)
        lost = {"only_lost_peer": first.only_lost_peer or None}
        yield KIND.finding("critical", words, first.ranks, evidence={}, beside=lost)


def _explains(failed: Finding, hang: Finding) -> bool:
    """Whether a failure is why the other ranks stand: not where it is a wait that ended, nor of a rank that hung."""
    return not hang.ranks and not failed.evidence.get("only_lost_peer")


KIND = Kind(
    "rank_failed",
    subject="rank",
    detect=detect,
    is_announced=False,
    explains="failed",
    outdoes=("hang",),
    covers=_explains,
)
