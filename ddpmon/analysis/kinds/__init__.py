"""The kinds of findings, in the order in which findings are listed. Each file has a kind or a family of kinds.

First come kinds that end or spoil a run, then those with a measured cost, and then those without one.
"""

from __future__ import annotations

from collections.abc import Hashable

from ddpmon.analysis.kinds.communication import communication_bound, needless_reductions, slow_link, unused_search
from ddpmon.analysis.kinds.cpu_starved import cpu_starved
from ddpmon.analysis.kinds.failed import rank_failed, restart_loop
from ddpmon.analysis.kinds.gpus import gpu_error, gpu_shared, gpu_throttled
from ddpmon.analysis.kinds.hang import hang, timeout_near
from ddpmon.analysis.kinds.kind import Kind
from ddpmon.analysis.kinds.late_ranks import LATE, moving_straggler, run_slowed
from ddpmon.analysis.kinds.losses import loss_diverged, loss_not_finite, loss_spiked
from ddpmon.analysis.kinds.memory import allocator_retries, gpu_memory, gpu_memory_growth, memory_growth
from ddpmon.analysis.kinds.pauses import pauses
from ddpmon.analysis.kinds.replicas import (
    buffers_differ,
    gradients_not_synchronised,
    independent_copies,
    parameters_not_reduced,
    replicas_differ,
)
from ddpmon.analysis.kinds.samples import same_data, same_order, same_worker_seeds, samplers_disagree, uneven_batches
from ddpmon.analysis.kinds.setup import configuration_differs, debugging, telemetry_lost
from ddpmon.analysis.kinds.step_time import data_bound, gap, gc_pauses, overhead_bound
from ddpmon.analysis.kinds.updates import (
    learning_rate_zero,
    learning_rates_differ,
    parameters_not_updated,
    trains_in_eval,
    updates_skipped,
)
from ddpmon.messages import Finding

KINDS: tuple[Kind, ...] = (
    *(rank_failed, restart_loop, hang, timeout_near, uneven_batches, loss_not_finite),
    *(replicas_differ, gradients_not_synchronised, parameters_not_reduced, parameters_not_updated),
    *(learning_rates_differ, independent_copies, same_data, updates_skipped, learning_rate_zero, gpu_error),
    *(*LATE, slow_link, moving_straggler, run_slowed, data_bound, gc_pauses, loss_diverged, communication_bound),
    *(needless_reductions, unused_search, loss_spiked, overhead_bound, gap),
    *(samplers_disagree, same_order, trains_in_eval),
    *(pauses, cpu_starved, gpu_throttled, allocator_retries, memory_growth, gpu_memory_growth, gpu_memory, gpu_shared),
    *(same_worker_seeds, debugging, configuration_differs, buffers_differ, telemetry_lost),
)
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> Kind:
    """Return a kind by its name. If this version of ddpmon does not know the name, return a kind without properties."""
    return _BY_NAME.get(name) or Kind(name=name)


def kind_of(finding: Finding) -> Kind:
    """Return the kind of a finding."""
    return kind_named(finding.kind)


def identity_of(finding: Finding) -> Hashable:
    """Return the identity of a finding, which its kind decides: see `Kind.identity`."""
    return kind_of(finding).identity(finding)
