"""Findings about ranks with different setups, about debugging settings, and about lost step records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.relevance import RELEVANT
from ddpmon.analysis.words import format_count, named_ranks, rank_list
from ddpmon.messages import Finding
from ddpmon.messages.setup import ANOMALY, DETAIL, LAUNCH_BLOCKING

COSTS = {
    ANOMALY: "torch.autograd's anomaly detection keeps a traceback for each operation and checks each gradient for NaN",
    DETAIL: "TORCH_DISTRIBUTED_DEBUG=DETAIL compares every collective between all ranks before it runs",
    LAUNCH_BLOCKING: "CUDA_LAUNCH_BLOCKING=1 makes the CPU wait for each GPU kernel",
}
OF_EACH_RANK = re.compile(
    r"rank|device|gpu|cuda|node|host|addr|port|seed|process|worker|shard|log|out|dir|path", re.IGNORECASE
)
"""Pattern of the names of arguments that are meant to differ between ranks or machines."""
MUST_BE_SAME = ("torch", "script", "Python")
"""Settings in which a difference between ranks is a fault. Differences in other settings may be intended."""
MAX_NAMED = 8
"""Maximum number of differences that are named."""


@Kind(
    "info",
    "debugging settings are on{where}:| {names}",
    "{costs}. Switch this setting off when you have found the fault.",
)
def debugging(moment: Moment) -> Iterator[Finding]:
    """Debugging settings are on. They slow each step down.

    The finding is never more than a hint, because somebody has set them on purpose.
    """
    setups = sorted(moment.evidence.setups.items())
    on = [switch for switch in COSTS if any(switch in setup.debugging for _, setup in setups)]
    ranks = [rank for rank, setup in setups if any(switch in setup.debugging for switch in on)]
    if on:
        who = rank_list(ranks, moment.evidence.world_size)
        where = "" if who == "all" else f", on {'rank' if len(ranks) == 1 else 'ranks'} {who}"
        beside = {"where": where, "names": ", ".join(on), "costs": "; ".join(COSTS[switch] for switch in on)}
        yield moment.finding({"switches": on}, ranks, beside=beside)


@Kind(
    "info",
    "|{who} {have} {name} {odd}, the others {usual}|{more}",
    "All ranks of a training should run the same script with the same arguments, versions and communication settings."
    " Compare the start commands on each machine. What differs: {names}.",
)
def configuration_differs(moment: Moment) -> Iterator[Finding]:
    """Ranks run with different versions, scripts, arguments or communication variables.

    The finding names the first difference and the number of other differences.
    """
    configurations = dict(sorted(moment.evidence.configurations.items()))
    if len({frozenset(one.items()) for one in configurations.values()}) < 2:
        return
    names = dict.fromkeys(name for one in configurations.values() for name in one)
    by_name = {name: {rank: one.get(name, "") for rank, one in configurations.items()} for name in names}
    differ = {
        name: values
        for name, values in by_name.items()
        if not (name.startswith(("-", "argument")) and OF_EACH_RANK.search(name)) and not _is_made_of_rank(values)
    }
    if not differ:
        return
    grave = [name for name in differ if name in MUST_BE_SAME]
    name = (grave or list(differ))[0]
    values = differ[name]
    (usual, most), (odd, second), *_ = Counter(values.values()).most_common()
    is_tie, first = most == second, {value: rank for rank, value in reversed(values.items())}
    yield moment.finding(
        {"differ": {one: {str(rank): value for rank, value in differ[one].items()} for one in [*differ][:MAX_NAMED]}},
        [rank for rank, value in values.items() if value != usual or is_tie],
        severity="warn" if grave else "info",
        headline="|ranks differ in {name}: {usual} on rank {usual_rank}, {odd} on rank {odd_rank}|{more}"
        if is_tie
        else None,
        beside={
            "name": name,
            "names": ", ".join([*differ][:MAX_NAMED]),
            "usual": usual or "unset",
            "odd": odd or "unset",
            "usual_rank": first[usual],
            "odd_rank": first[odd],
            "more": f"; {len(differ) - 1} more differ" if len(differ) > 1 else "",
        },
    )


def _is_made_of_rank(values: Mapping[int, str]) -> bool:
    """Return whether values are equal, apart from the number of the rank in each."""
    masked = {re.sub(rf"(?<!\d)0*{rank}(?!\d)", "*", value) for rank, value in values.items()}
    return len(masked) == 1 or len(set(values.values())) == 1


@Kind(
    "info",
    "{records}{whose} {were} lost ({share:.1%}); the report leaves those steps out",
    remedy="The training is not affected, but ddpmon's numbers have gaps. Make sure that the machine has free cores.",
)
def telemetry_lost(moment: Moment) -> Iterator[Finding]:
    """Records of steps were lost on their way from the ranks. Many lost records are a warning.

    The finding names the ranks, unless all of them lost records.
    """
    evidence, lost = moment.evidence, moment.evidence.lost
    if not lost:
        return
    share, made = lost / (lost + evidence.records), format_count(evidence.records + lost, "record")
    ranks = evidence.lost_ranks if len(evidence.lost_ranks) < evidence.world_size else ()
    beside = {
        "records": format_count(lost, "record of a step", "records of steps"),
        "whose": f" of {named_ranks(ranks, evidence.world_size)}" if ranks else "",
        "were": "was" if lost == 1 else "were",
        "read": evidence.records,
        "made": made,
    }
    damaged = "the recording is damaged:| {read:,} of about {made} of steps are readable"
    yield moment.finding(
        {"lost": lost, "share": share},
        ranks,
        severity="warn" if RELEVANT.is_reached(share) else "info",
        headline=damaged if evidence.damaged else None,
        beside=beside,
    )
