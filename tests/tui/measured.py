"""Made-up snapshots with everything that Comm and Devices show: costs, efficiencies, buckets, counters of machines."""

from __future__ import annotations

from ddpmon.messages import (
    GPU_COUNTERS,
    AllReduceView,
    BucketView,
    EfficiencyView,
    Environment,
    RankView,
    Snapshot,
)
from tests.findings import finding
from tests.tui import odd, snapshots
from tests.tui.snapshots import replace, sampled, wobble

GPU_BYTES = 80 * 2**30


def with_counters(rank: RankView, *, hot: bool = False, cores: int = 96) -> RankView:
    """The rank with every counter that a machine has."""
    place = rank.rank
    has_gpu = rank.has_gpu_sample
    gpu = {
        "gpu_percent": 99.0 if hot else 86 + 4 * wobble(place, 9),
        "gpu_memory_used_bytes": int((61 + 3 * wobble(place, 12)) * 2**30),
        "gpu_memory_total_bytes": GPU_BYTES,
        "gpu_power_w": 402.0 if hot else 371 + 20 * wobble(place, 13),
        "gpu_temperature_c": 86.0 if hot else 62 + 3 * wobble(place, 14),
        "gpu_clock_mhz": 1_320.0 if hot else 1_755.0,
        "gpu_throttled": "thermal" if hot else "",
    }
    return replace(
        sampled(
            rank,
            cpu_percent=104 + 6 * wobble(place, 15),
            starved_share=max(0.0, 0.01 * wobble(place, 16)),
            rss_bytes=int((3.1 + 0.2 * wobble(place, 17)) * 2**30),
            threads=42,
            read_bytes_per_s=4.1e6 * (1 + 0.2 * wobble(place, 18)),
            written_bytes_per_s=2_048.0,
            major_faults_per_s=0.0,
            **(gpu if has_gpu else {}),
        ),
        environment=Environment(
            device_name="NVIDIA H100 80GB HBM3" if has_gpu else "",
            cores=cores,
            compute_threads=1,
            torch_version="2.13.0",
            backend="nccl" if has_gpu else "gloo",
            parameters=124_439_808,
            gradient_bytes=497_759_232,
            buffer_bytes=4_096,
        ),
    )


def slow() -> Snapshot:
    """One GPU holds its clocks down, and all_ranks waits for it."""
    calm = snapshots.slow()
    return replace(
        calm,
        ranks=[with_counters(rank, hot=rank.rank == 13) for rank in calm.ranks],
        all_reduce=AllReduceView(
            payload_bytes=497_759_232.0,
            wait_ms=39.9,
            transfer_ms=11.3,
            exposed_share=0.163,
            gain_without_waiting=1.142,
            gain_with_even_transfer=1.004,
        ),
        efficiency=EfficiencyView(
            parallel=0.829,
            load_balance=0.857,
            load_balance_persistent=0.861,
            load_balance_moving=0.995,
            communication=0.967,
        ),
    )


def bucketed(count: int = 14) -> Snapshot:
    """The same with the buckets recorded."""
    sizes = [31_502_336.0] + [37_401_000.0] * (count - 1)
    buckets = []
    end = 0.0
    for index, payload in enumerate(sizes):
        launch = 104.0 + 150 * (index + 1) / count
        transfer = payload / 4.1e6
        end = max(end, launch) + transfer + (38.0 if index == count - 1 else 1.5)
        names = [
            f"transformer.h.{11 - index}.{name}" for name in ("mlp.c_proj.bias", "mlp.c_proj.weight", "mlp.c_fc.bias")
        ]
        buckets.append(BucketView(0, index, int(payload), launch, end, transfer, names))
    return replace(slow(), buckets=buckets, bus_bandwidth_gb_s=18.44)


def cpu() -> Snapshot:
    """Four ranks of one machine without a GPU, on too few cores."""
    calm = snapshots.four_on_cpu()
    ranks = [
        sampled(with_counters(rank, cores=2), cpu_percent=49.0 + rank.rank, starved_share=0.51, threads=7)
        for rank in calm.ranks
    ]
    text = "4 ranks on 2 cores: each is starved 51% of the time"
    return replace(
        calm,
        ranks=ranks,
        notes=["there are no GPU counters: NVML Shared Library Not Found"],
        missing={GPU_COUNTERS: "there are no GPU counters: NVML Shared Library Not Found"},
        findings=[finding("cpu_starved", "warn", text, [0, 1, 2, 3])],
        all_reduce=AllReduceView(
            payload_bytes=824_456.0,
            wait_ms=1.21,
            transfer_ms=0.61,
            exposed_share=0.073,
            gain_without_waiting=1.05,
            gain_with_even_transfer=1.12,
            beside_ms=10.1,
        ),
        efficiency=EfficiencyView(
            parallel=0.93,
            load_balance=0.95,
            load_balance_persistent=0.99,
            load_balance_moving=0.96,
            communication=0.98,
        ),
    )


def many() -> Snapshot:
    """1,024 ranks on 128 hosts: one slow and hot, one dead, one whose GPU memory is nearly full."""
    calm = odd.many()
    ranks = [with_counters(rank, hot=rank.rank == 813) for rank in calm.ranks]
    ranks[77] = sampled(ranks[77], gpu_memory_used_bytes=79 * 2**30)
    costs = slow()
    return replace(
        calm,
        ranks=ranks,
        findings=[
            *calm.findings,
            finding("gpu_memory", "warn", "rank 77's GPU memory is 99% full", [77]),
        ],
        all_reduce=costs.all_reduce,
        efficiency=costs.efficiency,
    )


MADE = {"measured": slow, "buckets": bucketed, "cores": cpu, "world": many}
