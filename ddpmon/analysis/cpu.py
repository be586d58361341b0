"""Whether ranks get the CPU they could use: how long their training threads could run and got no core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.words import counted
from ddpmon.messages import Finding

FEWEST_SAMPLES = 5
NOTABLE = 0.05
HARMFUL = 0.15


@dataclass(frozen=True)
class Cpu:
    """A rank's CPU over the last seconds."""

    rank: int
    host: str
    starved: Sequence[float]
    """Share of each second in which the training thread could run and got no core."""
    cores: int = 0
    """That it may run on; 0: not known."""
    compute_threads: int = 0
    """That torch uses for one operation; 0: not known."""


def starved_share(shares: Sequence[float]) -> float | None:
    """Mean over the seconds in which it was measured; None without any."""
    return sum(shares) / len(shares) if shares else None


def cpu_starved(told: Sequence[Cpu], world_size: int, before: Sequence[Finding] = ()) -> list[Finding]:
    """A finding for each host on which ranks wait for a core, worst first. `before`: what was found last."""
    known = {finding.subject for finding in before if finding.kind == "cpu_starved"}
    hosts: dict[str, list[Cpu]] = {}
    for one in told:
        if len(one.starved) >= FEWEST_SAMPLES:
            hosts.setdefault(one.host, []).append(one)
    found = []
    for host, ranks in hosts.items():
        scale = 0.5 if host in known else 1.0
        shares = {one.rank: starved_share(one.starved) or 0.0 for one in ranks}
        starved = sorted(rank for rank, share in shares.items() if share >= scale * NOTABLE)
        if starved:
            found.append(_finding(host, ranks, shares, starved, world_size))
    return sorted(found, key=lambda finding: -finding.evidence["starved_share"])


def _finding(host: str, ranks: Sequence[Cpu], shares: dict[int, float], starved: list[int], world_size: int) -> Finding:
    mean = float(np.mean([shares[rank] for rank in starved]))
    cores = min(one.cores for one in ranks)
    threads = max(1, *(one.compute_threads for one in ranks))
    busy = len(ranks) * threads
    many = f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''}" + (f" of {threads} threads" if threads > 1 else "")
    who = "each waits" if len(starved) == len(ranks) > 1 else f"rank {rank_list(starved, world_size)} waits"
    waits = f"{who} {mean:.0%} of the time for a core"
    if cores and busy > cores:
        text = f"{many} on {cores} core{'s' if cores > 1 else ''}: {waits}"
        advice = (
            f"OMP_NUM_THREADS={max(1, cores // len(ranks))} gives each rank its share of the {counted(cores, 'core')}."
            if threads > 1 and cores >= len(ranks)
            else f"Start at most {cores} rank{'s' if cores > 1 else ''} here, or get more cores: ranks that share"
            " cores take turns, and all wait for whoever had the last one."
        )
    else:
        text = f"{waits} though there {'is' if cores == 1 else 'are'} {counted(cores, 'core')}" if cores else waits
        advice = (
            "Something besides the training threads takes the cores: look for DataLoader workers beyond"
            f" what {host or 'the machine'} has cores for, and for other programs."
        )
    return Finding(
        "cpu_starved",
        "warn" if mean >= HARMFUL else "info",
        text,
        starved,
        evidence={
            "host": host,
            "starved_share": mean,
            "by_rank": {str(rank): round(share, 4) for rank, share in shares.items()},
            "ranks": len(ranks),
            "cores": cores or None,
            "compute_threads": threads,
        },
        advice=advice,
        subject=host,
    )
