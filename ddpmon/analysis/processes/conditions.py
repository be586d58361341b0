"""Measurements of ranks' processes and devices over the last seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from ddpmon.messages import QUANTITIES, CpuRivals, Finding


@dataclass(frozen=True)
class Conditions:
    """Means of one rank over the last seconds of training; None: not measured."""

    rank: int
    host: str = ""
    starved_share: float | None = None
    """Share of the time in which the rank's training thread could run but got no core."""
    major_faults_per_s: float | None = None
    read_bytes_per_s: float | None = None
    swapped_bytes: int = 0
    """Bytes of memory in swap when the rank's stack was last sampled; 0: no memory in swap, or never sampled."""
    gpu_clock_mhz: float | None = None
    gpu_temperature_c: float | None = None
    gpu_throttled: tuple[str, ...] = ()
    """Reasons for which the rank's GPU reduced its clocks for at least half of the time."""
    starved: Sequence[float] = ()
    """Values of `starved_share`, one for each second in which it was measured."""
    cores: int = 0
    """Number of cores that the process could run on when it started; 0: unknown."""
    affinity: frozenset[int] = frozenset()
    """The cores that the training thread may run on now; empty: unknown."""
    compute_threads: int = 0
    """Number of threads that torch uses for one operation; 0: unknown."""
    worker_cores: frozenset[int] = frozenset()
    """The cores that the rank's DataLoader workers may run on; empty: unknown."""
    loader_workers: int | None = None
    """Number of workers of the DataLoader from which the rank read the most batches."""
    loader_pinned: bool | None = None
    """True if the batches of the DataLoader with the most reads are in pinned memory; None: no GPU, or unknown."""
    io_wait_share: float | None = None
    """Share of the time in which some process of the host waited for storage."""
    device_name: str = ""
    """Name of the rank's GPU; "": the rank has none."""
    other_program: str = ""
    """The program outside this run that holds the most memory of the rank's GPU: "pid 4711 (vllm)"; "": none."""
    cpu_rivals: CpuRivals = field(default_factory=CpuRivals)
    """Programs and CPU quotas that took the rank's cores when the rank last waited for a core."""
    means: Mapping[str, float] = field(default_factory=dict)
    """Means of the quantities that kinds of findings use as evidence, by name. Unmeasured quantities are absent."""
    around: Callable[[int, int], tuple[Conditions | None, Conditions | None]] = field(
        default=lambda *_: (None, None), compare=False, repr=False
    )
    """Returns the mean conditions before a first moment and after a second moment; None where there are no samples.
    Both moments are in microseconds before the latest step."""


SAMPLED_FIELDS = (
    *("starved_share", "major_faults_per_s", "read_bytes_per_s", "io_wait_share"),
    *("gpu_clock_mhz", "gpu_temperature_c"),
)
"""Fields of `Conditions` that are means of samples, under the names of their fields."""


def typical_conditions(them: Sequence[Conditions]) -> Conditions:
    """Combine the conditions of ranks into one: medians of measurements, and throttling that half of the ranks have."""
    throttled = Counter(one.gpu_throttled for one in them if one.gpu_throttled).most_common(1)
    workers = [one.loader_workers for one in them if one.loader_workers is not None]
    names = {one.device_name for one in them}
    measured: dict[str, Any] = {name: median_of(getattr(one, name) for one in them) for name in SAMPLED_FIELDS}
    return Conditions(
        them[0].rank,
        them[0].host,
        gpu_throttled=throttled[0][0] if throttled and 2 * throttled[0][1] >= len(them) else (),
        swapped_bytes=max(one.swapped_bytes for one in them),
        cores=min(one.cores for one in them),
        affinity=frozenset().union(*(one.affinity for one in them)),
        worker_cores=frozenset().union(*(one.worker_cores for one in them)),
        compute_threads=max(one.compute_threads for one in them),
        loader_workers=max(workers) if workers else None,
        device_name=names.pop() if len(names) == 1 else "",
        other_program=next((one.other_program for one in them if one.other_program), ""),
        cpu_rivals=max((one.cpu_rivals for one in them), key=lambda rivals: rivals.used_cores),
        **measured,
    )


def with_means(finding: Finding, quantities: Sequence[str], conditions: Mapping[int, Conditions]) -> Finding:
    """Return the finding with further evidence: medians of quantities over its ranks and over their peers.

    Args:
        finding: The finding. If it names no ranks, it is about all ranks.
        quantities: Names of the quantities to add.
        conditions: Conditions of each rank.

    """
    evidence = dict(finding.evidence)
    its = {rank: not finding.ranks or rank in finding.ranks for rank in conditions} if quantities else {}
    for row in (QUANTITIES[name] for name in quantities):
        for name, whose in ((row.field, True), (f"peers_{row.field}", False)):
            middle = median_of(one.means.get(row.name) for rank, one in conditions.items() if its[rank] is whose)
            if middle is not None:
                evidence[name] = middle
    return finding if len(evidence) == len(finding.evidence) else msgspec.structs.replace(finding, evidence=evidence)


def lone_host(late: Sequence[int], by_rank: Mapping[int, Conditions]) -> tuple[str, int] | None:
    """Return the host whose ranks are exactly the late ranks, and its number of ranks; None if there is none."""
    hosts = {by_rank[rank].host for rank in late if rank in by_rank}
    everywhere = {one.host for one in by_rank.values()}
    if len(hosts) != 1 or len(everywhere) < 2 or not all(rank in by_rank for rank in late):
        return None
    (host,) = hosts
    there = [one.rank for one in by_rank.values() if one.host == host]
    return (host, len(there)) if host and set(there) == set(late) else None


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that were measured; None if no value was measured."""
    measured = [value for value in values if value is not None]
    return float(median(measured)) if measured else None
