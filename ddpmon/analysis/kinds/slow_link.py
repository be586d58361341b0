"""Ranks arrive with the others and leave the all-reduce after them: their link is slow, not their work.

A rank that leaves a synchronisation late begins its next step late, so that it is last at the next synchronisation
too, with own times like everyone's: lateness of arrival alone would say that it is slow. A rank that waits for a core
leaves late as well, and that is no link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, STAYS, mean_step_ms, since
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.parallelism import collectives, with_ddp
from ddpmon.analysis.statistics.arrays import medians
from ddpmon.analysis.statistics.excess import EXPLAINS, SOME, over_peers
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks

FEWEST_RANKS = Threshold(
    3,
    of="ranks",
    why="Of two it is undecided whose link it is.",
)
SHARE = Threshold(
    0.05,
    of="share of the step by which a rank's transfer takes longer than its peers'",
    why="A judgement: 1.05 times as fast without it is worth a look at a cable.",
    keeps=STAYS,
)
LEAST_MS = Threshold(
    1.0,
    of="ms by which it takes longer",
    why="A judgement: a busy machine wakes a thread that may go on later than an idle one does.",
    keeps=STAYS,
)
PARTS = 4
"""Parts of the window in each of which transfers must take longer as a rule: some long ones in a row are no link."""


@dataclass(frozen=True)
class SlowLink:
    """Of a step; gain: times as fast if it were as fast as the others'."""

    transfer_over_ms: float
    """More than the peers'."""
    peers_transfer_ms: float
    gain: float
    hosts: list[str] = for_words()
    """Theirs."""
    is_one_host: bool = for_words()
    """All ranks are on it: no network lies between them."""
    with_gpus: bool = for_words()
    parallelism: str = for_words()
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[SlowLink]]:
    """The ranks whose transfer takes longer than their peers'."""
    world, held = moment.world, moment.held_one(KIND)
    ranks = len(world.ranks)
    if ranks < FEWEST_RANKS.enter:
        return
    step = mean_step_ms(world)
    means = world.mean("transfer_ms")
    within_ms = moment.evidence.clocks_within_ms
    least = max(LEAST_MS.asked(held is not None), SHARE.asked(held is not None) * step, within_ms)
    slow = np.flatnonzero(means - np.median(means) >= least)
    if not len(slow) or len(slow) > (ranks - 1) // 2:
        return
    peers = np.delete(np.arange(ranks), slow)
    some = peers[:: -(-len(peers) // SOME)]
    over = world.transfer_ms[:, slow] - medians(world.transfer_ms[:, some])[:, None]
    sure = np.min([medians(part.T) for part in np.array_split(over, PARTS)], axis=0) >= least
    if not sure.any():
        return
    late = sorted(world.ranks[column] for column in slow[sure].tolist())
    cost = float(np.median(over[:, sure].max(axis=1)))
    if over_peers(world.mean("own_ms")[None]).max() >= cost:
        return  # all wait for a rank that is late by more, and leave in the order of the ring
    if any(_lacks_cores(moment.conditions.get(rank), cost / step) for rank in late):
        return
    everywhere = {one.host for one in moment.evidence.conditions}
    facts = SlowLink(
        transfer_over_ms=cost,
        peers_transfer_ms=float(np.median(means[peers])),
        gain=step / max(step - cost, 1e-3),
        hosts=sorted({moment.conditions[rank].host for rank in late if rank in moment.conditions} - {""}),
        is_one_host=len(everywhere) == 1 and "" not in everywhere,
        with_gpus=any(one.device_name for one in moment.evidence.conditions),
        parallelism=moment.evidence.parallelism,
        world_size=ranks,
    )
    yield Detection(KIND, "warn", facts, late, "transfer", since(world, held), cost_ms=cost)


def _lacks_cores(rank: Conditions | None, share: float) -> bool:
    """Whether waiting for a core explains so much of a step: who waits for one also goes on late."""
    starved = rank.starved_share if rank else None
    return starved is not None and starved >= EXPLAINS.enter * share


def words(detection: Detection[SlowLink]) -> Words:
    """Whose link, on which host, and what to examine."""
    facts, cost, many = detection.facts, detection.facts.transfer_over_ms, len(detection.ranks) > 1
    who = named_ranks(detection.ranks, facts.world_size)
    where = f" on {facts.hosts[0]}" if len(facts.hosts) == 1 else ""
    ddp = with_ddp(facts.parallelism)
    synchronisation = "all-reduce" if ddp else "collectives"
    leaves = "each all-reduce" if ddp else f"a step's {collectives(facts.parallelism)}"
    lead = f"{who}{where}:"
    return Words(
        fitting(f"{lead} {synchronisation} {cost:+.1f} ms after arrival", f"; {facts.gain:.2f}x if not"),
        f"Own times are alike, and {who} {'leave' if many else 'leaves'} {leaves} {cost:.1f} ms after"
        f" {'their' if many else 'its'} peers: {_where_to_look(facts, where, many=many)}.",
        lead=lead,
    )


def _where_to_look(facts: SlowLink, where: str, *, many: bool) -> str:
    its = "their" if many else "its"
    lanes = f"the PCIe lanes of {its} card{'s' * many} (nvidia-smi topo -m)"
    if facts.is_one_host:
        cores = f"{its} cores, and what else runs on them"
        return (
            f"all ranks are on one machine, with no network between them: look at {lanes if facts.with_gpus else cores}"
        )
    return (
        f"look at {its} link{where}: the interface that is used (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), its speed and"
        f" errors (ethtool), {lanes}"
    )


KIND = Kind(
    "slow_link",
    subject="world",
    gone="the link of {who} is as fast as the others' again",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
    slows="rank {rank}'s slow link",
    quantities=("sent", "received"),
)
