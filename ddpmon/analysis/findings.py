"""Detection of all findings of a run, by their kinds, and the ranks and steps that findings call slow.

A finding begins when a threshold is reached, and lasts until the value is clearly below it. So findings do not flicker.
Each kind is detected and worded in a file of its own, in `kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import KINDS, identity_of, kind_of
from ddpmon.analysis.kinds.kind import Moment
from ddpmon.analysis.over_time.heat import LateSteps
from ddpmon.analysis.processes.conditions import with_means
from ddpmon.analysis.steps.summary import MIN_MEAN_STEPS
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Finding

OVERTAKES = Threshold(
    1.3,
    of="cost at which a finding moves to the top of the list, as a multiple of the cost of the top finding",
    why="A judgement call: the order of two similar findings does not change what a user would do.",
)


def all_findings(
    world: World | None, evidence: Evidence, before: Sequence[Finding] = (), longer: World | None = None
) -> list[Finding]:
    """Return all findings, worst first.

    Args:
        world: The steps of the window.
        evidence: The other facts.
        before: The result of the previous call.
        longer: The same world with more steps before it, for problems that recur at long intervals of steps.

    """
    moment = Moment(evidence, world, before, longer if longer is not None else world)
    first = next((f for f in before if kind_of(f).by_cost and f.severity != "info" and f.is_lasting), None)
    everything: list[Finding] = []
    for by_cost, kinds in groupby(KINDS, key=lambda kind: kind.by_cost):
        block: list[Finding] = []
        for kind in kinds:
            block += kind.findings(moment)
        everything += sorted(block, key=lambda one: _by_cost(one, first)) if by_cost else block
    larger = [finding for finding in everything if kind_of(finding).outdoes]
    return [
        with_means(finding, kind_of(finding).quantities, evidence.conditions_by_rank)
        for finding in everything
        if not any(kind_of(whole).leaves_out(whole, finding) for whole in larger)
    ]


def _by_cost(finding: Finding, first: Finding | None) -> tuple[bool, bool, float]:
    """Return a sort key that puts the costliest finding first. `first` stays first until another finding costs clearly
    more.
    """
    stays = first is not None and identity_of(first) == identity_of(finding)
    cost = (finding.cost_ms or 0.0) * (OVERTAKES.enter if stays else 1.0)
    return not finding.is_lasting, finding.severity == "info", -cost


def ranks_to_fix(findings: Sequence[Finding]) -> tuple[list[int], str]:
    """Return the slow ranks of the first finding that names slow ranks, and their host if all of its ranks are slow."""
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

    Means over steps before and after a change would be misleading.
    """
    changes = [f for f in findings if kind_of(f).changes_level]
    begins = [f.since_step if f.until_step is None else f.until_step + 1 for f in changes]
    latest = max((step for step in begins if step is not None), default=0)
    first = min(int(np.searchsorted(world.step, latest)), len(world) - MIN_MEAN_STEPS)
    return world.steps_between(first, len(world)) if first > 0 else world
