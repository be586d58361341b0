"""What is wrong with a run, as far as the evidence carries it.

`findings` looks at a window of steps and at what it found before: a finding is entered on full evidence and stays
until clearly less than its threshold is left, so that it does not flap. Each kind is told in a module of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from ddpmon.analysis import failures
from ddpmon.analysis.besides import besides
from ddpmon.analysis.causes import causes
from ddpmon.analysis.conditions import Conditions, with_means
from ddpmon.analysis.cpu import Cpu, cpu_starved
from ddpmon.analysis.gaps import gap
from ddpmon.analysis.gpus import gpu_throttled
from ddpmon.analysis.hangs import Standstill, hang
from ddpmon.analysis.imbalance import imbalance
from ddpmon.analysis.memory import Memory, gpu_memory, memory_growth
from ddpmon.analysis.named import NamedTimes, explained
from ddpmon.analysis.not_finite import Loss, loss_not_finite
from ddpmon.analysis.pauses import Times
from ddpmon.analysis.replicas import Difference, Sameness, Unsynchronised, gradients_not_synchronised, replicas_differ
from ddpmon.analysis.words import counted
from ddpmon.analysis.world import World
from ddpmon.messages import Finding


@dataclass(frozen=True)
class Evidence:
    """What there is besides the steps of the window."""

    records: int = 0
    """Step records received."""
    lost: int = 0
    damaged: bool = False
    """They come from a recording of which something could not be read."""
    bad_losses: Sequence[Loss] = ()
    """The first of each rank."""
    failed: failures.FirstFailure | None = None
    world_size: int = 0
    standstill: Standstill | None = None
    difference: Difference | None = None
    same: Sameness | None = None
    unsynchronised: Sequence[Unsynchronised] = ()
    cpu: Sequence[Cpu] = ()
    memory: Sequence[Memory] = ()
    named: NamedTimes | None = None
    """What scripts named in the window's steps."""
    conditions: Sequence[Conditions] = ()
    bus_bandwidth_gb_s: float | None = None
    """Where buckets are recorded."""
    times: Times = field(default_factory=Times)
    """Where the time went."""
    parallelism: str = ""
    """How the ranks train: DDP, FSDP2, … (see messages.words); "": they do not tell."""
    unmeasured: Collection[str] = ()
    """Of PHASES, those of which nothing is measured then."""


def findings(
    world: World | None, evidence: Evidence, before: Sequence[Finding] = (), longer: World | None = None
) -> list[Finding]:
    """Everything found, worst first. `before`: what the previous call returned.

    longer: the same world with more steps before it, for what comes every so many steps.
    """
    found = []
    conditions = {one.rank: one for one in evidence.conditions}
    if evidence.failed:
        ranks, cause = evidence.failed.ranks, evidence.failed.cause
        resident = {one.rank: one.rss_bytes[-1] for one in evidence.memory if one.rss_bytes}
        advice = failures.advice(evidence.failed.rank, cause, resident)
        text = failures.headline(ranks, cause, evidence.world_size)
        found.append(Finding("rank_failed", "critical", text, list(ranks), advice=advice))
    if evidence.standstill and (stands := hang(evidence.standstill)):
        found.append(stands)
    if bad := loss_not_finite(evidence.bad_losses, evidence.world_size):
        found.append(bad)
    unsynchronised = gradients_not_synchronised(
        evidence.unsynchronised, evidence.world_size, evidence.difference, evidence.same
    )
    if evidence.difference and not any(f.severity == "critical" for f in unsynchronised):  # else that tells of it
        found.append(replicas_differ(evidence.difference, evidence.world_size))
    found += unsynchronised
    if world is not None:
        kind = evidence.parallelism
        late = imbalance(world, before, conditions, longer, kind)
        costly = [_told_as_other(finding, evidence) for finding in late]
        costly += causes(world, before, evidence.bus_bandwidth_gb_s, evidence.conditions, kind, evidence.unmeasured)
        if evidence.named:
            costly = explained(costly, evidence.named, world)
            by_hand = gap(world, evidence.named, before)
            costly += [by_hand] if by_hand else []
        found += sorted(costly, key=lambda f: (f.until_step is not None, f.severity == "info", -(f.cost_ms or 0.0)))
    found += besides(evidence.times, evidence.world_size)
    found += cpu_starved(evidence.cpu, evidence.world_size, before)
    found += gpu_throttled(evidence.conditions, evidence.world_size)
    found += memory_growth(evidence.memory, evidence.world_size)
    found += gpu_memory(evidence.memory, evidence.world_size)
    if evidence.lost:
        found.append(_telemetry_lost(evidence))
    found = [with_means(finding, conditions) for finding in found]
    return [replace(f, evidence=plain(f.evidence), cost_ms=plain(f.cost_ms)) for f in found]


def _told_as_other(finding: Finding, evidence: Evidence) -> Finding:
    """Where forward is not measured, what is told of `other` may be forward's."""
    if finding.phase != "other" or "forward" not in evidence.unmeasured:
        return finding
    advice = f"Forward is not measured here and counts as other: it may be that. {finding.advice or ''}"
    return replace(finding, advice=advice.rstrip())


def plain(value: Any) -> Any:
    """The same without numpy's numbers and arrays, which neither a message nor a report can hold."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _telemetry_lost(evidence: Evidence) -> Finding:
    share = evidence.lost / (evidence.lost + evidence.records)
    were = "was" if evidence.lost == 1 else "were"
    text = (
        f"{counted(evidence.lost, 'record of a step', 'records of steps')} {were} lost ({share:.1%});"
        " the report leaves those steps out"
    )
    if evidence.damaged:
        made = evidence.records + evidence.lost
        text = f"recording damaged: {evidence.records:,} of about {counted(made, 'record')} of steps could be read"
    return Finding(
        "telemetry_lost",
        "warn" if share >= 0.01 else "info",
        text,
        evidence={"lost": evidence.lost, "share": share},
    )
