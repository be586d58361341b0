"""Made-up snapshots of runs that train with something else than DDP."""

from __future__ import annotations

from ddpmon.analysis.processes.parallelism import measured_sentence
from ddpmon.messages import SYNC_COLLECTIVE, SYNC_KINDS, AllReduceView, EfficiencyView, RunView, Snapshot
from tests.tui.snapshots import STARTED, four_on_cpu, replace


def _of(parallelism: str, unmeasured: list[str], snapshot: Snapshot) -> Snapshot:
    said = measured_sentence(parallelism, unmeasured)
    ranks = [replace(rank, unmeasured=unmeasured, late_ms=None) for rank in snapshot.ranks]
    return replace(
        snapshot,
        ranks=ranks,
        all_reduce_ms=None,
        parallelism=parallelism,
        unmeasured=unmeasured,
        measured=said,
        notes=[said],
    )


def fsdp2() -> Snapshot:
    """Four ranks that wait for each other in all-gathers and reduce-scatters."""
    costs = AllReduceView(
        payload_bytes=0.0, wait_ms=0.61, transfer_ms=11.2, exposed_share=0.31, gain_without_waiting=1.03,
        gain_with_even_transfer=1.01, kind=SYNC_KINDS[SYNC_COLLECTIVE],
    )  # fmt: skip
    efficiency = EfficiencyView(0.67, 0.98, 0.99, 0.99, 0.68)
    return replace(_of("FSDP2", [], four_on_cpu()), all_reduce=costs, efficiency=efficiency)


def tensor_parallel() -> Snapshot:
    """The same of DTensors: nobody calls a wrapper's forward."""
    return replace(
        _of("tensor parallel", ["forward"], fsdp2()), all_reduce=fsdp2().all_reduce, efficiency=fsdp2().efficiency
    )


def alone() -> Snapshot:
    """One process: nobody to wait for, nothing that tells of forward."""
    one = four_on_cpu()
    one = replace(
        one,
        run=RunView(id="r", name="mnist", world_size=1, script="training/mnist.py", started_at=STARTED + 3660),
        ranks=one.ranks[:1],
        wait_share=None,
        verdict="one rank; a step takes 24.9 ms",
    )
    return _of("one process", ["forward", "wait", "transfer"], one)


MADE = {"fsdp2": fsdp2, "tensor_parallel": tensor_parallel, "alone": alone}
