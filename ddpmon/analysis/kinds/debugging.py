"""Switches that help to find a fault are on, and make each step slower. Never more than a hint: they are meant."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import fitting, rank_list
from ddpmon.messages import Finding
from ddpmon.messages.setup import ANOMALY, DETAIL, LAUNCH_BLOCKING

COSTS = {
    ANOMALY: "torch.autograd's anomaly detection keeps a traceback for each operation and checks each gradient for NaN",
    DETAIL: "TORCH_DISTRIBUTED_DEBUG=DETAIL compares every collective between all ranks before it runs",
    LAUNCH_BLOCKING: "CUDA_LAUNCH_BLOCKING=1 waits for each kernel, so that host and GPU never work at the same time",
}


def detect(moment: Moment) -> Iterator[Finding]:
    """Return one finding with all of them."""
    by_switch: dict[str, list[int]] = {}
    for rank, setup in sorted(moment.evidence.setups.items()):
        for switch in setup.debugging:
            by_switch.setdefault(switch, []).append(rank)
    known = [switch for switch in COSTS if switch in by_switch]
    if not known:
        return
    ranks = sorted({rank for switch in known for rank in by_switch[switch]})
    who = rank_list(ranks, moment.evidence.world_size)
    where = "" if who == "all" else f", on {'rank' if len(ranks) == 1 else 'ranks'} {who}"
    lead = f"debugging is on{where}:"
    words = Words(
        fitting(f"{lead} {', '.join(known)}"),
        f"{'; '.join(COSTS[switch] for switch in known)}. Switch it off once the fault is found.",
        lead=lead,
    )
    yield KIND.finding("info", words, ranks, evidence={"switches": known})


KIND = Kind("debugging", detect=detect)
