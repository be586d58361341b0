"""The steps and ranks that findings call slow, and the steps since the last change of speed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.over_time.heat import LateSteps
from ddpmon.analysis.steps.summary import MIN_MEAN_STEPS
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding


def ranks_to_fix(findings: Sequence[Finding]) -> tuple[list[int], str]:
    """Return the slow ranks of the first finding that has some, and their host if all of it is slow."""
    for finding in findings:
        if _each_is_late(finding) and finding.cost_ms is not None and finding.is_lasting:
            return finding.ranks, finding.subject if kind_of(finding).subject == "host" else ""
    return [], ""


def late_steps(findings: Sequence[Finding]) -> list[LateSteps]:
    """Return the steps in which findings, lasting or ended, say that ranks were late: in all steps, or now and then."""
    return [
        LateSteps(
            frozenset(finding.ranks),
            finding.since_step,
            finding.until_step,
            finding.phase,
            "since_interval" in finding.evidence,
            finding.evidence.get("phase_excess_ms", 0.0) / 2 if finding.evidence.get("share") else 0.0,
        )
        for finding in findings
        if finding.since_step is not None and _is_about_late_ranks(finding) and _each_is_late(finding)
    ]


def _is_about_late_ranks(finding: Finding) -> bool:
    return kind_of(finding).changes_level or kind_of(finding).family == "late"


def _each_is_late(finding: Finding) -> bool:
    return len(finding.ranks) == 1 or kind_of(finding).is_one_of_several(finding)


def since_change(world: World, findings: Sequence[Finding]) -> World:
    """Return the steps since the latest change that findings name, but at least MIN_MEAN_STEPS.

    Means across the change would describe neither side.
    """
    changes = [f for f in findings if kind_of(f).changes_level]
    begins = [f.since_step if f.until_step is None else f.until_step + 1 for f in changes]
    latest = max((step for step in begins if step is not None), default=0)
    first = min(int(np.searchsorted(world.step, latest)), len(world) - MIN_MEAN_STEPS)
    return world.steps_between(first, len(world)) if first > 0 else world
