"""Findings about ranks of a host that wait for a CPU core."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.late_ranks import SEVERAL_STRAGGLERS, straggler
from ddpmon.analysis.kinds.relevance import COSTLY, RELEVANT, recurring_mean
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.core_rivals import rival_of, rivals_facts
from ddpmon.analysis.words import fit_parts, format_count, named_ranks, rank_list
from ddpmon.messages import CpuRivals, DeviceMark, Finding

MIN_RANK_SAMPLES = 5
"""Minimum number of samples of a rank, one per second: a script that starts is busy for a second or two."""


def _covers(whole: Finding, part: Finding) -> bool:
    """Return whether waits for a core (`whole`) explain why ranks are slow (`part`): each rank waits longer than its
    excess.

    On a host with too few cores, the scheduler decides which rank is slow. A rank that is bound to fewer cores than its
    peers has a cause of its own, however. The present wait is checked too, because `whole` does not change when ranks
    exit, and the remaining ranks may have enough cores.
    """
    facts, own = whole.evidence, part.evidence
    outnumbered = 0 < (facts.get("cores") or 0) < facts["ranks"] * facts["compute_threads"]
    if whole.severity == "info" or not outnumbered or "bound_to" in own:
        return False
    waited = min((facts["by_rank"].get(str(rank), 0.0) for rank in part.ranks), default=0.0)
    return bool(own.get("excess_ms", 0.0) < min(waited, own.get("starved_share", waited)) * own.get("step_ms", 0.0))


@Kind(
    subject="host",
    gone="ranks are no longer starved of cores",
    outdoes=(straggler.name, SEVERAL_STRAGGLERS.name),
    covers=_covers,
    slows="ranks starved of cores",
    device=DeviceMark("starved", ["starved"], 2),
    remedy="Use fewer ranks, threads (`OMP_NUM_THREADS`) or DataLoader workers than the machine has cores. Run nothing"
    " else on the machine.",
)
def cpu_starved(moment: Moment) -> Iterator[Finding]:
    """Ranks of a host wait for a core: their training threads are ready to run, but get no core.

    Each host with waiting ranks has its own finding. The finding stays the same while ranks exit: the remaining ranks
    then get a core, but nobody has fixed the cause.
    """
    before = {finding.subject: finding for finding in moment.previous_findings}
    hosts: dict[str, list[Conditions]] = {}
    for one in moment.evidence.conditions:
        if one.starved:
            hosts.setdefault(one.host, []).append(one)
    leaving = [one for host, one in before.items() if len(hosts.get(host, ())) < one.evidence["ranks"]]
    each = (
        _of_host(moment, ranks, before.get(host)) for host, ranks in hosts.items() if before.get(host) not in leaving
    )
    yield from sorted(filter(None, each), key=lambda finding: -finding.evidence["starved_share"])
    yield from leaving


def _of_host(moment: Moment, ranks: Sequence[Conditions], before: Finding | None) -> Finding | None:
    """Return the finding about the ranks of a host; None if they get the cores that they need."""
    if before is None and any(len(one.starved) < MIN_RANK_SAMPLES for one in ranks):
        return None  # Some ranks have just started, so the number of ranks that share the cores is unknown.
    least = RELEVANT.number_to_reach(before is not None)
    lasting = {one.rank: float(recurring_mean(np.array(one.starved))) for one in ranks if max(one.starved) >= least}
    starved = sorted(rank for rank, share in lasting.items() if share >= least)
    if not starved:
        return None
    shares = {one.rank: float(np.mean(one.starved)) for one in ranks}
    bound = sorted(frozenset().union(*(one.affinity for one in ranks)))
    rivals = max((one.cpu_rivals for one in ranks if one.rank in starved), key=lambda rivals: rivals.used_cores)
    at_start = min(one.cores for one in ranks)
    is_bound = 0 < len(bound) < at_start
    facts = {
        "host": ranks[0].host,
        "starved_share": float(np.mean([shares[rank] for rank in starved])),
        "by_rank": {str(rank): round(share, 4) for rank, share in shares.items()},
        "ranks": len(ranks),
        "cores": len(bound) if is_bound else at_start or None,
        "compute_threads": max(1, *(one.compute_threads for one in ranks)),
        "cores_at_start": at_start if is_bound else None,
        "bound_to": bound if is_bound else None,
        **rivals_facts(rivals),
    }
    was_costly = before is not None and before.severity == "warn"
    harms = COSTLY.is_reached(float(np.mean([lasting[rank] for rank in starved])), held=was_costly)
    words = _words(facts, starved, moment.evidence.world_size, rivals)
    return moment.finding(facts, starved, severity="warn" if harms else "info", words=words, subject=ranks[0].host)


def _words(evidence: Mapping[str, Any], starved: Sequence[int], world_size: int, rivals: CpuRivals) -> Words:
    """Return the words about which ranks wait, on how many cores, and on which cores if a script has bound them."""
    cores, threads, ranks = evidence["cores"] or 0, evidence["compute_threads"], evidence["ranks"]
    many = f"{ranks} rank{'s' if ranks > 1 else ''}" + (f" of {threads} threads" if threads > 1 else "")
    who = f"{named_ranks(starved, world_size)} {'is' if len(starved) == 1 else 'are'}"
    waits = f"{who} starved {evidence['starved_share']:.0%} of the time"
    each = f"each is starved {evidence['starved_share']:.0%} of the time" if len(starved) == ranks > 1 else waits
    if bound := evidence["bound_to"]:
        at_start = evidence["cores_at_start"]
        which = f"core{'s' if len(bound) > 1 else ''} {rank_list(bound, 0)}"
        lead = f"{many} may run on {which} alone, of {at_start}:"
        return Words(
            fit_parts(lead, f" {each}"),
            f"At their start the ranks had {format_count(at_start, 'core')}; since then, something in the script has "
            "bound the ranks to fewer cores. os.sched_setaffinity binds processes to cores, and some builds of BLAS "
            "and OpenMP call it when they are imported. DataLoader workers are bound to the same cores. Call "
            f"os.sched_setaffinity(0, range({at_start})) after the imports to get the cores back.",
            lead=lead,
        )
    rival = rival_of(rivals, evidence["starved_share"], cores)
    if rival.is_quota:
        return Words(fit_parts(waits, rival.where), f"{rival.advice}.")
    if cores and ranks * threads > cores:
        lead = f"{many} on {cores} core{'s' if cores > 1 else ''}:"
        return Words(
            f"{lead} {each}",
            _fewer_threads(cores, ranks, threads) + (f" {rival.advice}." if rival.advice else ""),
            lead=lead,
        )
    if rival.advice:
        return Words(fit_parts(waits, rival.where), f"{rival.advice}.")
    return Words(
        f"{waits} though there {'is' if cores == 1 else 'are'} {format_count(cores, 'core')}" if cores else waits,
        "Something other than the training threads uses the cores. Look for other programs, and for more DataLoader"
        f" workers than {evidence['host'] or 'the machine'} has cores for.",
    )


def _fewer_threads(cores: int, ranks: int, threads: int) -> str:
    """Return advice for a host with more ranks than cores, or with too many threads per rank."""
    if threads > 1 and cores >= ranks:
        return (
            f"Set OMP_NUM_THREADS={max(1, cores // ranks)}, which gives each rank its share of the"
            f" {format_count(cores, 'core')}."
        )
    return (
        f"Start at most {cores} rank{'s' if cores > 1 else ''} here, or get more cores. If ranks share "
        "cores, they run one after another, and all ranks wait for the last one."
    )
