"""The kinds of findings, in the order in which findings are listed. A kind, or a family of them, is one file."""

from __future__ import annotations

from collections.abc import Hashable

from ddpmon.analysis.kinds import (
    allocator_retries,
    buffers_differ,
    communication_bound,
    configuration_differs,
    cpu_starved,
    data_bound,
    debugging,
    gap,
    gc_pauses,
    gpu_error,
    gpu_memory,
    gpu_memory_growth,
    gpu_shared,
    gpu_throttled,
    gradients_not_synchronised,
    hang,
    independent_copies,
    late_ranks,
    learning_rate_zero,
    learning_rates_differ,
    loss_diverged,
    loss_not_finite,
    loss_spiked,
    memory_growth,
    moving_straggler,
    needless_reductions,
    overhead_bound,
    parameters_not_reduced,
    parameters_not_updated,
    pauses,
    rank_failed,
    replicas_differ,
    restart_loop,
    same_data,
    same_order,
    same_worker_seeds,
    samplers_disagree,
    slow_link,
    telemetry_lost,
    timeout_near,
    trains_in_eval,
    uneven_batches,
    unused_search,
    updates_skipped,
)
from ddpmon.analysis.kinds.kind import Kind
from ddpmon.messages import Finding

KINDS: tuple[Kind, ...] = (
    rank_failed.KIND,
    restart_loop.KIND,
    hang.KIND,
    timeout_near.KIND,
    uneven_batches.KIND,
    loss_not_finite.KIND,
    replicas_differ.KIND,
    gradients_not_synchronised.KIND,
    parameters_not_reduced.KIND,
    parameters_not_updated.KIND,
    samplers_disagree.KIND,
    same_order.KIND,
    learning_rates_differ.KIND,
    independent_copies.KIND,
    same_data.KIND,
    trains_in_eval.KIND,
    updates_skipped.KIND,
    learning_rate_zero.KIND,
    gpu_error.KIND,
    *late_ranks.LATE,
    slow_link.KIND,
    moving_straggler.KIND,
    late_ranks.RUN_SLOWED,
    data_bound.KIND,
    gc_pauses.KIND,
    loss_diverged.KIND,
    communication_bound.KIND,
    needless_reductions.KIND,
    unused_search.KIND,
    loss_spiked.KIND,
    overhead_bound.KIND,
    gap.KIND,
    pauses.KIND,
    cpu_starved.KIND,
    gpu_throttled.KIND,
    allocator_retries.KIND,
    memory_growth.KIND,
    gpu_memory_growth.KIND,
    gpu_memory.KIND,
    gpu_shared.KIND,
    same_worker_seeds.KIND,
    debugging.KIND,
    configuration_differs.KIND,
    buffers_differ.KIND,
    telemetry_lost.KIND,
)
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> Kind:
    """A kind by its name; for one that only another version of ddpmon has, one that nothing follows from."""
    return _BY_NAME.get(name) or Kind(name)


def kind_of(finding: Finding) -> Kind:
    """The kind of a finding."""
    return kind_named(finding.kind)


def identity_of(finding: Finding) -> Hashable:
    """Return what a finding is about, as its kind says: see `Kind.identity`."""
    return kind_of(finding).identity(finding)
