"""What is wrong with a run, as far as the evidence carries it.

A finding is entered on full evidence and stays until clearly less than its threshold is left, so that it does not
flap. Each kind is found and told in a file of its own, in `kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import KINDS, kind_of
from ddpmon.analysis.kinds.kind import Found, Moment
from ddpmon.analysis.processes.conditions import with_means
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding


def findings(
    world: World | None, evidence: Evidence, before: Sequence[Finding] = (), longer: World | None = None
) -> list[Finding]:
    """Everything found, worst first. `before`: what the previous call returned.

    longer: the same world with more steps before it, for what comes every so many steps.
    """
    steps = 0 if world is None else len(world)
    moment = Moment(evidence, world, before, longer if longer is not None else world)
    found: list[Finding] = []
    for by_cost, kinds in groupby(KINDS, key=lambda kind: kind.by_cost):
        block: list[Finding] = []
        for kind in kinds:
            if kind.detect is not None and steps >= kind.fewest_steps:
                block += [one.kind.finding(one) if isinstance(one, Found) else one for one in kind.detect(moment)]
                moment.found = found + block
        found += sorted(block, key=_by_cost) if by_cost else block
    outdone = {name for finding in found if finding.severity != "info" for name in kind_of(finding).outdoes}
    return [
        with_means(finding, moment.conditions)
        for finding in found
        if finding.kind not in outdone or finding.until_step is not None
    ]


def _by_cost(finding: Finding) -> tuple[bool, bool, float]:
    return finding.until_step is not None, finding.severity == "info", -(finding.cost_ms or 0.0)
