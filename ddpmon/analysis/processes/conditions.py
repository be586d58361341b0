"""What the processes and devices of ranks did over the last seconds, and what of it sets a late rank apart.

A cause is named only where it sets the rank apart from its peers and can account for half of what makes it late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import MB, counted
from ddpmon.messages import QUANTITIES, Finding

SLOWER_CLOCK = Threshold(
    0.07,
    of="share by which the clocks of other GPUs are higher than a GPU's",
    why="A judgement: clocks of GPUs that are alike differ by less.",
)
FAULTS_PER_S = Threshold(
    10.0,
    of="page faults a second of a rank that wait for a disk",
    why="A judgement: of some ms each, they take some hundredths of the time; fewer are no matter.",
)
READ_BYTES_PER_S = Threshold(
    4 * MB,
    of="bytes a second that a rank reads from storage",
    why="A judgement: any disk reads as much in some hundredths of a second; less is no matter.",
)
TIMES = Threshold(
    4.0,
    of="times its peers' page faults, or reads, that a late rank has",
    why="A judgement: it sets the rank apart from peers that differ among themselves too.",
)


@dataclass(frozen=True)
class Conditions:
    """Of one rank: means of the last seconds of training; None: not measured."""

    rank: int
    host: str = ""
    starved_share: float | None = None
    """Of the time: its training thread could run and got no core."""
    major_faults_per_s: float | None = None
    read_bytes_per_s: float | None = None
    gpu_clock_mhz: float | None = None
    gpu_temperature_c: float | None = None
    gpu_throttled: tuple[str, ...] = ()
    """Why its GPU held its clocks down for at least half of the time."""
    cores: int = 0
    """That it may run on; 0: unknown."""
    loader_workers: int | None = None
    """Of the DataLoader that it read most."""
    loader_pinned: bool | None = None
    """Whether that one's batches lie in pinned memory; None: not for a GPU, or unknown."""
    means: Mapping[str, float] = field(default_factory=dict)
    """Of what kinds of findings name as evidence, by name of the quantity; without what is not measured."""


@dataclass(frozen=True)
class Cause:
    """Why a rank is late, as far as the evidence carries it."""

    name: str
    short: str
    """Follows the phase in a sentence."""
    advice: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lateness:
    """What a cause has to account for."""

    rank: int
    phase: str
    over_ms: float
    own_ms: float
    step_ms: float


def cause(late: Lateness, by_rank: Mapping[int, Conditions], peers: Sequence[int]) -> Cause | None:
    """What sets a late rank apart from its peers, ranks that are not late; the surest first."""
    mine = by_rank.get(late.rank)
    others = [by_rank[rank] for rank in peers if rank in by_rank]
    if mine is None:
        return None
    causes = (of(late, mine, others) for of in (_slow_gpu, _no_core, _fewer_workers, _disk))
    return next((cause for cause in causes if cause is not None), None)


def _slow_gpu(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    if late.phase not in {"forward", "backward", "optimizer"}:
        return None
    reasons = ", ".join(mine.gpu_throttled)
    why = f" ({reasons})" if reasons else ""
    hot = f", at {mine.gpu_temperature_c:.0f} °C" if mine.gpu_temperature_c is not None else ""
    theirs = _median(one.gpu_clock_mhz for one in others)
    if mine.gpu_clock_mhz and theirs is not None:
        slower = theirs / mine.gpu_clock_mhz - 1
        if slower < SLOWER_CLOCK.enter or slower * late.own_ms < EXPLAINS.enter * late.over_ms:
            return None
        return Cause(
            "gpu_clock",
            f", its GPU at {mine.gpu_clock_mhz:,.0f} of {theirs:,.0f} MHz",
            f"Rank {late.rank}'s GPU runs at {mine.gpu_clock_mhz:,.0f} MHz{why}{hot}, its peers' at {theirs:,.0f}: look"
            " at its cooling and power limit (nvidia-smi -q -d PERFORMANCE), or take another GPU.",
            {"gpu_clock_mhz": mine.gpu_clock_mhz, "peers_gpu_clock_mhz": theirs, "gpu_throttled": reasons},
        )
    if mine.gpu_throttled and others and not any(one.gpu_throttled for one in others):
        return Cause(
            "gpu_throttled",
            f", its GPU throttled: {reasons}",
            f"Rank {late.rank}'s GPU alone holds its clocks down{why}{hot}: look at its cooling and power limit"
            " (nvidia-smi -q -d PERFORMANCE).",
            {"gpu_throttled": reasons},
        )
    return None


def _no_core(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    if mine.starved_share is None:
        return None
    theirs = _median(one.starved_share for one in others) or 0.0
    if (mine.starved_share - theirs) * late.step_ms < EXPLAINS.enter * late.over_ms:
        return None
    return Cause(
        "cpu_starved",
        f", waits {mine.starved_share:.0%} of the time for a core",
        f"It waits {mine.starved_share:.0%} of the time for a core, its peers {theirs:.0%}: that alone can be it. Look"
        f" at what else runs on {mine.host or 'its machine'}, and at the cores that the rank is bound to.",
        {"starved_share": mine.starved_share, "peers_starved_share": theirs},
    )


def _fewer_workers(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    theirs = [one.loader_workers for one in others if one.loader_workers is not None]
    if late.phase != "data" or mine.loader_workers is None or not theirs or mine.loader_workers >= min(theirs):
        return None
    return Cause(
        "loader_workers",
        f", {counted(mine.loader_workers or 0, 'loader worker')}, peers {min(theirs)}",
        f"Rank {late.rank}'s DataLoader has {counted(mine.loader_workers or 0, 'worker')}, its peers' {min(theirs)} or"
        " more: give it as many.",
        {"loader_workers": mine.loader_workers, "peers_loader_workers": min(theirs)},
    )


def _disk(late: Lateness, mine: Conditions, others: Sequence[Conditions]) -> Cause | None:
    faults = _median(one.major_faults_per_s for one in others)
    if mine.major_faults_per_s is not None and faults is not None:
        most = max(FAULTS_PER_S.enter, TIMES.enter * faults)
        if mine.major_faults_per_s >= most:
            return Cause(
                "page_faults",
                f", {mine.major_faults_per_s:,.0f} page faults/s from disk",
                f"Rank {late.rank} waits for a disk at {mine.major_faults_per_s:,.0f} page faults a second, its peers"
                f" at {faults:,.0f}: its memory is paged out, or it maps files that are not in the page cache.",
                {"major_faults_per_s": mine.major_faults_per_s, "peers_major_faults_per_s": faults},
            )
    reads = _median(one.read_bytes_per_s for one in others)
    if late.phase != "data" or mine.read_bytes_per_s is None or reads is None:
        return None
    if mine.read_bytes_per_s < max(READ_BYTES_PER_S.enter, TIMES.enter * reads):
        return None
    return Cause(
        "reads",
        f", reads {mine.read_bytes_per_s / MB:,.0f} MB/s from disk",
        f"Rank {late.rank} reads {mine.read_bytes_per_s / MB:,.1f} MB/s from storage, its peers {reads / MB:,.1f}: they"
        " find in the page cache what it has to fetch, or its share of the files is larger. DataLoader workers read"
        " besides.",
        {"read_bytes_per_s": mine.read_bytes_per_s, "peers_read_bytes_per_s": reads},
    )


def with_means(finding: Finding, quantities: Sequence[str], conditions: Mapping[int, Conditions]) -> Finding:
    """The finding with the median of each of these quantities over its ranks, or all, and over their peers."""
    evidence = dict(finding.evidence)
    its = {rank: not finding.ranks or rank in finding.ranks for rank in conditions} if quantities else {}
    for row in (QUANTITIES[name] for name in quantities):
        for name, whose in ((row.sample_field, True), (f"peers_{row.sample_field}", False)):
            middle = _median(one.means.get(row.name) for rank, one in conditions.items() if its[rank] is whose)
            if middle is not None:
                evidence[name] = middle
    return finding if len(evidence) == len(finding.evidence) else replace(finding, evidence=evidence)


def lone_host(late: Sequence[int], by_rank: Mapping[int, Conditions]) -> tuple[str, int] | None:
    """The host that all late ranks are on, and how many ranks it has, if all of its ranks are late and others not."""
    hosts = {by_rank[rank].host for rank in late if rank in by_rank}
    everywhere = {one.host for one in by_rank.values()}
    if len(hosts) != 1 or len(everywhere) < 2 or not all(rank in by_rank for rank in late):
        return None
    (host,) = hosts
    there = [one.rank for one in by_rank.values() if one.host == host]
    return (host, len(there)) if host and set(there) == set(late) else None


def _median(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return float(np.median(measured)) if measured else None
