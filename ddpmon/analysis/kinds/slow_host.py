"""All ranks of a host, or most, are late together: it is the machine, and one finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.late import Late, gain_words, leads, names
from ddpmon.analysis.kinds.late_hosts import LateHost, late_hosts
from ddpmon.analysis.kinds.late_ranks import BEGINNING, over_for_each
from ddpmon.analysis.kinds.own_time import SOME_STEPS, WORTH, caveat, forward_may_be
from ddpmon.analysis.processes.conditions import Cause
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.words import WIDTH, fitting
from ddpmon.messages import Finding

ADVICE = {
    "data": "its disk or its mount of the file system, and the cores that its DataLoader workers get",
    "forward": "its GPUs' clocks, power and cooling, its cores, and what else runs there",
    "backward": "its GPUs' clocks, power and cooling, its cores, and what else runs there",
    "optimizer": "its GPUs' clocks, power and cooling, its cores, and what else runs there",
    "other": "where it writes its logs and checkpoints, its cores, and what else runs there",
}
"""Advice by phase, where there is no better evidence."""
EVIDENCE = (
    *("starved", "major_faults", "read", "written", "io_wait", "sent", "received"),
    *("gpu_clock", "gpu_temperature", "gpu_power"),
)
"""Quantities of its ranks beside those of others."""


@dataclass(frozen=True)
class SlowHost(Late):
    """Of its late ranks the median; gain: times as fast if all of them were as the ranks of other hosts."""

    cause: str | None = None
    """What of its processes or devices sets it apart since it is late."""
    remark: str | None = None
    """The same of what did not begin with that."""
    host_ranks: int = 0
    """On the host."""
    why: Cause | None = for_words(None)


def late_now(moment: Moment, world: World) -> list[LateHost]:
    """Hosts that are late, or were for a while."""
    held = moment.held(KIND)
    over = [f for f in held if f.until_step is not None and f.until_step >= world.step[0]]
    lasting = [f for f in held if f.lasts]
    return late_hosts(world, lasting, over, moment.conditions, moment.rhythmic)


def over_of_ranks(moment: Moment, world: World, hosts: Sequence[LateHost]) -> list[Finding]:
    """For each rank of hosts that were late for a while: that it is over for it, too."""
    past = [(host.ranks, host.until) for host in hosts if host.stretch.over]
    past += [(f.ranks, f.until_step) for f in moment.held(KIND) if f.until_step is not None]
    return over_for_each(KIND.name, past, world)


def detected(
    moment: Moment, hosts: Sequence[LateHost], late_ranks: Sequence[int]
) -> Iterator[Detection[SlowHost] | Finding]:
    """The hosts for which it is worth a finding, worst first, then those of last time that are over.

    late_ranks: columns of ranks that are late by themselves.
    """
    now = [host for host in hosts if not host.stretch.over]
    for host in hosts:
        if not host.stretch.over:
            host.partners = [c for other in now if other is not host for c in other.columns] + list(late_ranks)
        if host.held or (WORTH.reached(host.together) and leads(host.part, [*host.columns, *host.partners])):
            yield _detection(host, moment.evidence)
    first = int((moment.longer or moment.world).step[0])
    yield from (f for f in moment.held(KIND) if f.until_step is not None and f.until_step >= first)


def _detection(host: LateHost, evidence: Evidence) -> Detection[SlowHost]:
    part, why = host.part, host.cause
    starved = [host.conditions[rank].starved_share for rank in host.ranks]
    shares = [share for share in starved if share is not None]
    facts = SlowHost(
        own_ms=float(np.median(part.own_ms[:, host.columns].mean(axis=0))),
        over_median_ms=host.over_ms,
        phase_excess_ms=float(host.phases_ms.max()),
        peers_wait_ms=float(part.wait_ms.mean(axis=0)[host.peers].mean()),
        critical_share=part.waited_for(host.columns),
        gain=host.alone,
        steps=len(part),
        step_ms=float(part.step_ms.mean()),
        with_ranks=host.with_ranks or None,
        gain_together=host.together if host.partners else None,
        starved_share=float(np.median(shares)) if shares else None,
        host=host.name,
        from_the_start=host.since <= BEGINNING,
        world_size=len(part.ranks),
        may_be_forward=forward_may_be(host.phase, evidence),
        **names(why),
        host_ranks=host.size,
        why=why,
    )
    held = host.held is not None and host.held.severity == "warn"
    return Detection(
        KIND,
        "warn" if not host.stretch.over and WORTH.reached(host.together, held=held) else "info",
        facts,
        host.ranks,
        host.phase,
        host.since,
        host.until,
        facts.step_ms * (1 - 1 / host.together),
        subject=host.name,
        beside=why.evidence if why else {},
    )


def words(detection: Detection[SlowHost]) -> Words:
    """Which host, how many of its ranks, in which phase, by how much, what sets it apart, and what mending it gains."""
    facts, why, host = detection.facts, detection.facts.why, detection.subject
    over = f"{facts.phase_excess_ms:+.1f} ms {detection.phase}"
    if detection.until_step is not None:
        lead = f"{host} was slow from step {detection.since_step:,} to {detection.until_step:,}:"
        text = fitting(f"{lead} {_whose(detection)} {over}")
        advice = f"It is over: look at what else ran on {host} then, and in its kernel's log."
        return Words(text, caveat(facts, advice), f"{host} was slow until step {detection.until_step:,}", lead)
    lead = f"{host} is slow:"
    head = f"{lead} {_whose(detection)} {over}"
    tail, short = gain_words(facts, "fixed", len(detection.ranks))
    begun = " from the start" if facts.from_the_start else f" since step {detection.since_step:,}"
    middles = [why.short, ""] if why and why.began == "with" else [begun, ""]
    texts = [head + middle + end for middle in middles for end in (tail, short)]
    text = next((one for one in texts if len(one) <= WIDTH), fitting(head))
    return Words(text, caveat(facts, _advice(detection)), lead=lead)


def _whose(detection: Detection[SlowHost]) -> str:
    late, there = len(detection.ranks), detection.facts.host_ranks
    return f"{late} of {there} ranks" if late < there else "both ranks" if there == 2 else f"all {there} ranks"


def _advice(detection: Detection[SlowHost]) -> str:
    facts, host = detection.facts, detection.subject
    elsewhere = ", and none elsewhere" if facts.with_ranks is None else ""
    who = f"{_whose(detection)} of {host} are late together{elsewhere}: it is the machine, not one of them."
    who = who[0].upper() + who[1:]
    if facts.why and facts.why.began == "with":
        return f"{who} {facts.why.advice}"
    measured = "; what was measured of it is as elsewhere." if facts.why is None else f". {facts.why.advice}"
    return f"{who} Look at {ADVICE[detection.phase or 'other']}{measured}"


KIND = Kind(
    "slow_host",
    subject="host",
    family="late",
    gone="{who} keep{s} up again",
    words=words,
    fewest_steps=SOME_STEPS,
    by_cost=True,
    changes_level=True,
    slows="{host}'s {phase}",
    quantities=EVIDENCE,
    is_one_of_several=lambda _: True,
)
