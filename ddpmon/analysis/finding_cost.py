"""What findings have cost by now."""

from __future__ import annotations

from ddpmon.messages import Finding


def cost_s(finding: Finding, last_step: int | None) -> float | None:
    """Seconds that a finding took since its first step: its cost of a step times the steps that it lasted.

    last_step: up to which one that still lasts is counted. None: it costs nothing that is measured, or nobody knows
    since when, or it lasts one step only.
    """
    end = finding.until_step if finding.until_step is not None else last_step
    if finding.cost_ms is None or finding.since_step is None or end is None or end <= finding.since_step:
        return None
    return finding.cost_ms * (end - finding.since_step + 1) / 1e3
