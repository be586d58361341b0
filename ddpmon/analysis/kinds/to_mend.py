"""Who is to be mended for the steps to be shorter, as findings have it."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.analysis.kinds import kind_of
from ddpmon.messages import Finding


def to_mend(findings: Sequence[Finding]) -> tuple[list[int], str]:
    """Ranks that are late by themselves, of the first finding that has such; and their host, where that is late."""
    for finding in findings:
        kind = kind_of(finding)
        each_is_late = len(finding.ranks) == 1 or kind.is_one_of_several(finding)
        if each_is_late and finding.cost_ms is not None and finding.until_step is None:
            return finding.ranks, finding.subject if kind.subject == "host" else ""
    return [], ""
