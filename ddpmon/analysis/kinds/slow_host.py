"""All ranks of a host, or most, are late together: it is the machine, and one finding."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Words, for_words
from ddpmon.analysis.kinds.late import Late, gain_words, late, names, severity, since_words
from ddpmon.analysis.kinds.late_ranks import LateRanks
from ddpmon.analysis.kinds.own_time import caveat
from ddpmon.analysis.processes.conditions import Cause
from ddpmon.analysis.words import WIDTH, fitting

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


def detected(one: LateRanks) -> Detection[SlowHost]:
    """Return the finding about the ranks of one host."""
    name = one.conditions[one.rank].host if one.rank in one.conditions else ""
    held = next((f for f in one.moment.held(KIND) if f.subject == name and f.lasts), None)
    why = one.cause(held, name)
    there = sum(other.host == name for other in one.conditions.values())
    facts = SlowHost(**{**late(one), "host": name}, **names(why), host_ranks=there, why=why)
    return Detection(
        KIND, severity(one, held), facts, one.ranks, one.phase, one.since, one.until, one.cost_ms(),
        subject=name, beside=why.evidence if why else {},
    )  # fmt: skip


def words(detection: Detection[SlowHost]) -> Words:
    """Which host, how many of its ranks, in which phase, by how much, what sets it apart, and what mending it gains."""
    facts, why, host = detection.facts, detection.facts.why, detection.subject
    over = f"{facts.phase_excess_ms:+.1f} ms {detection.phase}"
    if detection.until_step is not None:
        lead = f"{host} was slow from step {detection.since_step:,} to {detection.until_step:,}:"
        text = fitting(f"{lead} {_whose(detection)} {over}")
        advice = f"It is over: look at what else ran on {host} then, and in its kernel's log."
        return Words(text, caveat(facts, advice), f"{host} was slow until step {detection.until_step:,}", lead)
    leads = {
        "irregular": f"{host} is slow in {facts.share:.0%} of steps, now and then:",
        "ramp": f"{host} becomes slower and slower:",
    }
    lead = leads.get(facts.pattern or "", f"{host} is slow:")
    head = f"{lead} {_whose(detection)} {over}"
    tail, short = gain_words(facts, "fixed", len(detection.ranks))
    begun = since_words(facts, detection.since_step)
    if facts.hidden_since is not None:
        text = fitting(f"{head} until step {facts.hidden_since - 1:,}", "; since then noise hides it")
        return Words(text, caveat(facts, _advice(detection)), lead=lead)
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
    by_cost=True,
    changes_level=True,
    slows="{host}'s {phase}",
    quantities=EVIDENCE,
    is_one_of_several=lambda _: True,
)
