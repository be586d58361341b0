"""Links of ranks that are slower than those of their peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.relevance import RELEVANT, STAYS, cost
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.parallelism import collectives, with_ddp
from ddpmon.analysis.statistics.arrays import column_medians, medians
from ddpmon.analysis.statistics.excess import EXPLAINS, over_peers, some_of
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Finding

LEAST_MS = Threshold(
    1.0,
    of="ms by which a rank's transfer takes longer than its peers' transfers",
    why="A judgement: a thread that waits for a transfer wakes up later on a busy machine than on an idle one.",
    stay=1.0 * STAYS,
)
PARTS = 4
"""Parts of the window in each of which transfers must take longer as a rule: some long ones in a row are no link."""


@Kind(
    "warn",
    "{who}{where}:| {what} {transfer_over_ms:+.1f} ms after arrival|; {gain:.2f}x faster if fixed",
    "Own times are alike, and {who} {leave} {which} {transfer_over_ms:.1f} ms after {their} peers: {look}.",
    gone="the link of {who} is as fast as the others' again",
    fewest_steps=FEWEST,
    by_cost=True,
    slows="rank {rank}'s slow link",
    quantities=("sent", "received"),
    remedy="Look at that rank's network card, cable or PCIe lane; `ddpmon run --buckets` shows the bandwidth.",
)
def slow_link(moment: Moment) -> Iterator[Finding]:
    """Ranks arrive with the others but leave the all-reduce after them: their link is slow, not their work.

    A rank that leaves a synchronisation late begins its next step late. It is therefore last at the next
    synchronisation too, although its own times are normal. Late arrival alone would blame its work. A rank that waits
    for a core leaves late as well, but has no slow link. With two ranks, ddpmon cannot decide whose link is slow.
    """
    world, ranks, stays = moment.world, len(moment.world.ranks), moment.previous is not None
    means, conditions = world.mean("transfer_ms"), moment.conditions
    least = max(
        LEAST_MS.asked(stays), RELEVANT.asked(stays) * float(world.step_ms.mean()), moment.evidence.clocks_within_ms
    )
    slow = np.flatnonzero(means - np.median(means) >= least)
    if not len(slow) or len(slow) > (ranks - 1) // 2:
        return
    peers = np.delete(np.arange(ranks), slow)
    over = world.transfer_ms[:, slow] - medians(world.transfer_ms[:, some_of(peers)])[:, None]
    sure = np.min([column_medians(part) for part in np.array_split(over, PARTS)], axis=0) >= least
    if not sure.any():
        return
    late = sorted(world.ranks[column] for column in slow[sure].tolist())
    found = cost(moment, float(np.median(over[:, sure].max(axis=1))))
    if over_peers(world.mean("own_ms")[None]).max() >= found.cost_ms:
        return  # all wait for a rank that is late by more, and leave in the order of the ring
    mine = [conditions[rank] for rank in late if rank in conditions]
    if any((one.starved_share or 0.0) >= EXPLAINS.enter * found.share for one in mine):
        return  # who waits for a core also goes on late
    ddp, many = with_ddp(moment.evidence.parallelism), len(late) > 1
    hosts = {one.host for one in mine} - {""}
    where = f" on {hosts.pop()}" if len(hosts) == 1 else ""
    beside = {
        "where": where,
        "what": "all-reduce" if ddp else "collectives",
        "which": "each all-reduce" if ddp else f"a step's {collectives(moment.evidence.parallelism)}",
        "leave": "leave" if many else "leaves",
        "look": _where_to_look(moment.evidence.conditions, where, many=many),
    }
    facts = {"transfer_over_ms": found.cost_ms, "peers_transfer_ms": float(np.median(means[peers]))}
    yield moment.finding(facts, late, "transfer", beside=beside, cost=found)


def _where_to_look(conditions: Sequence[Conditions], where: str, *, many: bool) -> str:
    its, hosts = "their" if many else "its", {one.host for one in conditions}
    lanes = f"the PCIe lanes of {its} card{'s' * many} (nvidia-smi topo -m)"
    if len(hosts) == 1 and "" not in hosts:
        cores = f"{its} cores, and what else runs on them"
        with_gpus = any(one.device_name for one in conditions)
        return f"all ranks are on one machine, with no network between them: look at {lanes if with_gpus else cores}"
    return (
        f"look at {its} link{where}: the interface that is used (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), its speed and"
        f" errors (ethtool), {lanes}"
    )
