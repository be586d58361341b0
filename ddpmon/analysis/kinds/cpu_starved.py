"""Ranks of a host wait for a core: their training threads could run and get none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.evidence import Cpu, starved_share
from ddpmon.analysis.kinds import several_stragglers, straggler
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.steps.recurrence import recurring_mean
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import counted, named_ranks
from ddpmon.messages import DeviceMark, Finding

FEWEST_SAMPLES = Threshold(
    5,
    of="samples of a rank, one a second",
    why="A judgement: one busy second, as while a script starts, is no want of cores.",
)
NOTABLE = Threshold(
    0.05,
    of="share of the time in which a rank's training thread waits for a core",
    why="A judgement: steps take as much longer where all wait for that rank; less is the ordinary scheduler.",
    keeps=0.5,
)
HARMFUL = Threshold(
    0.15,
    of="the same, mean of the ranks of a host that wait",
    why="A judgement: three times what is notable, a step that takes a sixth longer.",
    keeps=0.7,
)


@dataclass(frozen=True)
class CpuStarved:
    """What share of the time ranks of a host wait, and for how many cores."""

    host: str
    starved_share: float
    """Mean of the ranks that wait."""
    by_rank: dict[str, float]
    ranks: int
    """On the host."""
    cores: int | None
    compute_threads: int
    """Of each rank, at most."""
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[CpuStarved] | Finding]:
    """One for each host on which ranks wait, worst first.

    It stays as it was while ranks leave: those that are left get the cores of the others, which was no one's mending.
    """
    there = Counter(one.host for one in moment.evidence.cpu if one.starved)
    leaving = [one for one in moment.held(KIND) if there[one.subject] < one.evidence["ranks"]]
    left_out = {one.subject for one in leaving}
    yield from sorted(_each_host(moment, left_out), key=lambda detection: -detection.facts.starved_share)
    yield from leaving


def _each_host(moment: Moment, left_out: Collection[str]) -> Iterator[Detection[CpuStarved]]:
    held = {finding.subject: finding.severity == "warn" for finding in moment.held(KIND)}
    hosts: dict[str, list[Cpu]] = {}
    for one in moment.evidence.cpu:
        if one.starved and one.host not in left_out:
            hosts.setdefault(one.host, []).append(one)
    for host, ranks in hosts.items():
        if host not in held and not all(FEWEST_SAMPLES.reached(len(one.starved)) for one in ranks):
            continue  # the others have just begun: how many ranks share the cores is not seen yet
        shares = {one.rank: starved_share(one.starved) or 0.0 for one in ranks}
        lasting = {one.rank: float(recurring_mean(np.array(one.starved))) for one in ranks}
        starved = sorted(rank for rank, share in lasting.items() if NOTABLE.reached(share, held=host in held))
        if starved:
            mean = float(np.mean([shares[rank] for rank in starved]))
            facts = CpuStarved(
                host=host,
                starved_share=mean,
                by_rank={str(rank): round(share, 4) for rank, share in shares.items()},
                ranks=len(ranks),
                cores=min(one.cores for one in ranks) or None,
                compute_threads=max(1, *(one.compute_threads for one in ranks)),
                world_size=moment.evidence.world_size,
            )
            harms = HARMFUL.reached(float(np.mean([lasting[rank] for rank in starved])), held=held.get(host, False))
            yield Detection(KIND, "warn" if harms else "info", facts, starved, subject=host)


def covers(whole: Finding, part: Finding) -> bool:
    """Whether ranks are late by less than each waits for a core in a step, where ranks outnumber them.

    Which of them gets one is the scheduler's matter, and no rank's. What it waits by now counts as well: `whole` stays
    as it was when ranks have left, and those that are left may have cores enough.
    """
    facts, own = whole.evidence, part.evidence
    outnumbered = 0 < (facts.get("cores") or 0) < facts["ranks"] * facts["compute_threads"]
    if whole.severity == "info" or not outnumbered:
        return False
    waited = min((facts["by_rank"].get(str(rank), 0.0) for rank in part.ranks), default=0.0)
    return bool(own.get("excess_ms", 0.0) < min(waited, own.get("starved_share", waited)) * own.get("step_ms", 0.0))


def words(detection: Detection[CpuStarved]) -> Words:
    """Who waits, on how many cores."""
    facts = detection.facts
    cores, threads, ranks = facts.cores or 0, facts.compute_threads, facts.ranks
    many = f"{ranks} rank{'s' if ranks > 1 else ''}" + (f" of {threads} threads" if threads > 1 else "")
    everyone = len(detection.ranks) == ranks > 1
    verb = "waits" if len(detection.ranks) == 1 else "wait"
    who = "each waits" if everyone else f"{named_ranks(detection.ranks, facts.world_size)} {verb}"
    waits = f"{who} {facts.starved_share:.0%} of the time for a core"
    if cores and ranks * threads > cores:
        lead = f"{many} on {cores} core{'s' if cores > 1 else ''}:"
        return Words(
            f"{lead} {waits}",
            f"OMP_NUM_THREADS={max(1, cores // ranks)} gives each rank its share of the {counted(cores, 'core')}."
            if threads > 1 and cores >= ranks
            else f"Start at most {cores} rank{'s' if cores > 1 else ''} here, or get more cores: ranks that share"
            " cores take turns, and all wait for whoever had the last one.",
            lead=lead,
        )
    return Words(
        f"{waits} though there {'is' if cores == 1 else 'are'} {counted(cores, 'core')}" if cores else waits,
        "Something besides the training threads takes the cores: look for DataLoader workers beyond"
        f" what {facts.host or 'the machine'} has cores for, and for other programs.",
    )


KIND = Kind(
    "cpu_starved",
    subject="host",
    gone="ranks get their cores again",
    words=words,
    detect=detect,
    outdoes=(straggler.KIND.name, several_stragglers.KIND.name),
    covers=covers,
    slows="waiting for cores",
    device=DeviceMark("no core free", ["starved"], 2),
)
