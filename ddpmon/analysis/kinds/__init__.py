"""The kinds of findings, in the order in which findings of them are listed. A kind is one file."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ddpmon.analysis.kinds import (
    communication_bound,
    cpu_starved,
    data_bound,
    gap,
    gc_pauses,
    gpu_memory,
    gpu_throttled,
    gradients_not_synchronised,
    hang,
    late_in_bursts,
    load_imbalance,
    loss_diverged,
    loss_not_finite,
    loss_spiked,
    memory_growth,
    moving_straggler,
    overhead_bound,
    pauses,
    periodic_straggler,
    rank_failed,
    replicas_differ,
    run_slowed,
    several_stragglers,
    slow_host,
    slow_link,
    straggler,
    telemetry_lost,
    timeout_near,
)
from ddpmon.analysis.kinds.kind import Kind, Words
from ddpmon.messages import Finding

KINDS: tuple[Kind[Any], ...] = (
    rank_failed.KIND,
    hang.KIND,
    timeout_near.KIND,
    loss_not_finite.KIND,
    replicas_differ.KIND,
    gradients_not_synchronised.KIND,
    periodic_straggler.KIND,
    slow_host.KIND,
    several_stragglers.KIND,
    straggler.KIND,
    load_imbalance.KIND,
    late_in_bursts.KIND,
    slow_link.KIND,
    moving_straggler.KIND,
    run_slowed.KIND,
    data_bound.KIND,
    gc_pauses.KIND,
    loss_diverged.KIND,
    communication_bound.KIND,
    loss_spiked.KIND,
    overhead_bound.KIND,
    gap.KIND,
    pauses.KIND,
    cpu_starved.KIND,
    gpu_throttled.KIND,
    memory_growth.KIND,
    gpu_memory.KIND,
    telemetry_lost.KIND,
)
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> Kind[Any]:
    """A kind by its name; for one that only another version of ddpmon has, one that nothing follows from."""
    return _BY_NAME.get(name) or Kind(name, subject="world", gone="", words=lambda _: Words(""))


def kind_of(finding: Finding) -> Kind[Any]:
    """The kind of a finding."""
    return kind_named(finding.kind)


def identity_of(finding: Finding) -> Hashable:
    """Return what a finding is about, as its kind says: see `Kind.identity`."""
    return kind_of(finding).identity(finding)
