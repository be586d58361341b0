"""What is wrong with a run, as far as the evidence carries it.

`findings` looks at a window of steps and at what it found before: a finding is entered on full evidence and stays
until clearly less than its threshold is left, so that it does not flap. Each kind is told in a module of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from ddpmon.analysis import failures
from ddpmon.analysis.causes import causes
from ddpmon.analysis.conditions import Conditions
from ddpmon.analysis.cpu import Cpu, cpu_starved
from ddpmon.analysis.gaps import gap
from ddpmon.analysis.gpus import gpu_throttled
from ddpmon.analysis.hangs import Standstill, hang
from ddpmon.analysis.imbalance import imbalance
from ddpmon.analysis.memory import Memory, gpu_memory, memory_growth
from ddpmon.analysis.named import NamedTimes, explained
from ddpmon.analysis.replicas import Difference, Unsynchronised, gradients_not_synchronised, replicas_differ
from ddpmon.analysis.world import World
from ddpmon.messages import Finding


@dataclass(frozen=True)
class Loss:
    """The first loss of the run that was not finite."""

    rank: int
    step: int
    value: float


@dataclass(frozen=True)
class Evidence:
    """What there is besides the steps of the window."""

    records: int = 0
    """Step records received."""
    lost: int = 0
    bad_loss: Loss | None = None
    failed: tuple[int, str] | None = None
    """First rank that failed, and what of."""
    world_size: int = 0
    standstill: Standstill | None = None
    difference: Difference | None = None
    unsynchronised: Sequence[Unsynchronised] = ()
    cpu: Sequence[Cpu] = ()
    memory: Sequence[Memory] = ()
    named: NamedTimes | None = None
    """What scripts named in the window's steps."""
    conditions: Sequence[Conditions] = ()
    bus_bandwidth_gb_s: float | None = None
    """Where buckets are recorded."""
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
    if evidence.failed:
        rank, cause = evidence.failed
        resident = {one.rank: one.rss_bytes[-1] for one in evidence.memory if one.rss_bytes}
        advice = failures.advice(rank, cause, resident)
        found.append(Finding("rank_failed", "critical", f"rank {rank} failed: {cause}", [rank], advice=advice))
    if evidence.standstill and (stands := hang(evidence.standstill)):
        found.append(stands)
    if evidence.bad_loss:
        found.append(_loss_not_finite(evidence.bad_loss))
    if evidence.difference:
        found.append(replicas_differ(evidence.difference, evidence.world_size))
    found += gradients_not_synchronised(evidence.unsynchronised, evidence.world_size)
    if world is not None:
        conditions = {one.rank: one for one in evidence.conditions}
        kind = evidence.parallelism
        late = imbalance(world, before, conditions, longer, kind)
        costly = [_told_as_other(finding, evidence) for finding in late]
        costly += causes(world, before, evidence.bus_bandwidth_gb_s, evidence.conditions, kind, evidence.unmeasured)
        if evidence.named:
            costly = explained(costly, evidence.named, world)
            by_hand = gap(world, evidence.named, before)
            costly += [by_hand] if by_hand else []
        found += sorted(costly, key=lambda f: (f.until_step is not None, f.severity == "info", -(f.cost_ms or 0.0)))
    found += cpu_starved(evidence.cpu, evidence.world_size, before)
    found += gpu_throttled(evidence.conditions, evidence.world_size)
    found += memory_growth(evidence.memory, evidence.world_size)
    found += gpu_memory(evidence.memory, evidence.world_size)
    if evidence.lost:
        found.append(_telemetry_lost(evidence))
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


def _loss_not_finite(loss: Loss) -> Finding:
    return Finding(
        "loss_not_finite",
        "critical",
        f"loss is {loss.value} on rank {loss.rank} since step {loss.step:,}",
        [loss.rank],
        since_step=loss.step,
        evidence={"value": str(loss.value)},
        advice="Stop and look at that step's batch and learning rate; gradients that are not finite reach every rank.",
    )


def _telemetry_lost(evidence: Evidence) -> Finding:
    share = evidence.lost / (evidence.lost + evidence.records)
    return Finding(
        "telemetry_lost",
        "warn" if share >= 0.01 else "info",
        f"{evidence.lost:,} records of steps were lost ({share:.1%}); means leave those steps out",
        evidence={"lost": evidence.lost, "share": share},
    )
