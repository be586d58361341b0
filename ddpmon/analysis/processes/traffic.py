"""What the networks of hosts carry: whether one of them carries what is not this run's.

All ranks send as much in an all-reduce, so their hosts do, give or take how many ranks each has. Which host's link is
slow cannot be told from when synchronisations end, since the clocks of hosts are aligned by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import MB

TIMES = Threshold(
    2.0,
    of="times the bytes a second of the other hosts that the network of one carries",
    why="A judgement: a host with twice as many ranks sends no more than that.",
)
LEAST = Threshold(
    10 * MB,
    of="bytes a second more than theirs",
    why="A judgement: a tenth of what a gigabit link carries; less slows nobody.",
)


@dataclass(frozen=True)
class BusyHost:
    """A host whose network carries far more than the others', sent and received together."""

    host: str
    bytes_per_s: float
    peers_bytes_per_s: float


def several_hosts(conditions: Mapping[int, Conditions]) -> list[str]:
    """The hosts of a run, if there are several that are known by name."""
    hosts = {one.host for one in conditions.values()}
    return sorted(hosts) if len(hosts) > 1 and "" not in hosts else []


def busy_host(conditions: Mapping[int, Conditions]) -> BusyHost | None:
    """The host with the most, if that is far more than the others have."""
    of_ranks: dict[str, list[float]] = {}
    for one in conditions.values():
        if "sent" in one.means and "received" in one.means:
            of_ranks.setdefault(one.host, []).append(one.means["sent"] + one.means["received"])
    rates = {host: float(np.median(values)) for host, values in of_ranks.items()}
    if len(rates) < 2:
        return None
    host = max(rates, key=lambda name: rates[name])
    others = float(np.median([rate for name, rate in rates.items() if name != host]))
    if not (TIMES.reached(rates[host] / max(others, 1.0)) and LEAST.reached(rates[host] - others)):
        return None
    return BusyHost(host, rates[host], others)
