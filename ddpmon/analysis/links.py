"""Ranks that arrive with the others and leave the all-reduce after them: their link is slow, not their work.

A rank that leaves a synchronisation late begins its next step late, so that it is last at the next synchronisation
too, with own times like everyone's: lateness of arrival alone would say that it is slow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpmon.analysis.conditions import Conditions
from ddpmon.analysis.excess import chance, running_total, steady
from ddpmon.analysis.parallelism import collectives, with_ddp
from ddpmon.analysis.stragglers import deviations
from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import Finding

FEWEST_STEPS = 40
FEWEST_RANKS = 3
"""Of two ranks it cannot be told whose link it is."""
SHARE = 0.05
"""Of the step."""
LEAST_MS = 1.0
STAYS = 0.7


def slow_link(
    world: World,
    known: Finding | None = None,
    conditions: Mapping[int, Conditions] | None = None,
    parallelism: str = "",
) -> Finding | None:
    """The finding about the ranks whose transfer takes longer than their peers'. known: what was found last."""
    ranks = len(world.ranks)
    if ranks < FEWEST_RANKS or len(world) < FEWEST_STEPS:
        return None
    step = float(world.step_ms.mean())
    means = world.mean("transfer_ms")
    least = max(LEAST_MS, SHARE * step) * (STAYS if known else 1.0)
    slow = np.flatnonzero(means - np.median(means) >= least)
    if not len(slow) or len(slow) > (ranks - 1) // 2:
        return None
    peers = np.delete(np.arange(ranks), slow)
    over = world.transfer_ms[:, slow] - np.median(world.transfer_ms[:, peers[:: -(-len(peers) // 64)]], axis=1)[:, None]
    smooth = steady(over)
    bound = chance(running_total(smooth), 0.0).bound_ms(len(smooth), deviations(ranks))
    sure = (smooth.mean(axis=0) >= np.maximum(bound, least)) & (np.median(smooth, axis=0) >= least)
    if not sure.any():
        return None
    late = sorted(world.ranks[column] for column in slow[sure].tolist())
    cost = float(np.median(over[:, sure].max(axis=1)))
    factor = step / max(step - cost, 1e-3)
    names = rank_list(late, ranks)
    many = len(late) > 1
    hosts = sorted({conditions[rank].host for rank in late if conditions and rank in conditions} - {""})
    where = f" on {hosts[0]}" if len(hosts) == 1 else ""
    synchronisation = "all-reduce" if with_ddp(parallelism) else "collectives"
    leaves = "each all-reduce" if with_ddp(parallelism) else f"a step's {collectives(parallelism)}"
    return Finding(
        "slow_link",
        "warn",
        fitting(
            f"rank{'s' if many else ''} {names}{where}: {synchronisation} {cost:+.1f} ms after arrival",
            f"; {factor:.2f}x if not",
        ),
        late,
        "transfer",
        known.since_step if known and known.since_step is not None else int(world.step[0]),
        cost_ms=cost,
        evidence={"transfer_over_ms": cost, "peers_transfer_ms": float(np.median(means[peers])), "gain": factor},
        advice=(
            f"Own times are alike, and rank {names} leaves {leaves} {cost:.1f} ms after its peers: look at"
            f" {'their' if many else 'its'} link{where}: the interface that is used (NCCL_SOCKET_IFNAME,"
            " GLOO_SOCKET_IFNAME), its speed and errors (ethtool), the PCIe lanes of the card (nvidia-smi topo -m)."
        ),
    )
