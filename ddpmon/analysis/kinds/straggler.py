"""A rank is slow, with as much work as the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ddpmon.analysis.kinds import load_imbalance, several_stragglers, slow_host
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.late import Late, gain_words, has_company, late, names, over_words, severity, since_words
from ddpmon.analysis.kinds.late_ranks import LateRanks, Work, late_ranks
from ddpmon.analysis.kinds.own_time import SOME_STEPS, caveat
from ddpmon.analysis.processes.conditions import Cause
from ddpmon.analysis.steps.named import Named, explains
from ddpmon.analysis.words import WIDTH, fitting

ADVICE = {
    "data": "Look at what rank {rank}'s DataLoader does differently: its files, its disk, its workers.",
    "forward": "Look at what rank {rank}'s forward does differently: its inputs' sizes, its device, its CPU.",
    "backward": "Look at what rank {rank}'s backward does differently: its inputs' sizes, its device, its CPU.",
    "optimizer": "Look at what rank {rank} does around its optimizer's step: hooks, schedulers, its CPU.",
    "other": "Look at what rank {rank}'s loop does besides training: logging, checkpoints, evaluation.",
}
"""Advice by phase, where there is no better evidence."""


@dataclass(frozen=True)
class Straggler(Late):
    """What else is known of the rank."""

    cause: str | None = None
    """What of its process or device sets it apart since it is late."""
    remark: str | None = None
    """The same of what did not begin with that."""
    named: str | None = None
    """What the script calls the time in which it is late."""
    named_ms: float | None = None
    peers_named_ms: float | None = None
    why: Cause | None = for_words(None)
    host_ranks: int = for_words(0)
    """On `host`."""
    work: Work | None = for_words(None)
    """The sizes of batches; None: they were not measured."""


def detect(moment: Moment) -> Iterator[Detection[Any]]:
    """Slow ranks, hosts, and ranks that are slow together. Those with more work or a rhythm are of other kinds."""
    for one in late_ranks(moment):
        if one.recurs:
            continue
        if one.slowdown.scope == "host":
            yield slow_host.detected(one)
        elif one.slowdown.scope == "ranks":
            yield several_stragglers.detected(one)
        elif work := one.more_work(held=one.held(load_imbalance.KIND) is not None):
            yield load_imbalance.detected(one, work)
        else:
            yield _detected(one)


def _detected(one: LateRanks) -> Detection[Straggler]:
    held = one.held(KIND)
    why = None if one.gc_ms is not None else one.cause(held)
    named = _named(one)
    facts = Straggler(
        **late(one),
        **names(why),
        gc_ms=one.gc_ms,
        named=named.name if named else None,
        named_ms=named.mine_ms if named else None,
        peers_named_ms=named.peers_ms if named else None,
        why=why,
        host_ranks=one.host[1] if one.host else 0,
        work=max(one.works, key=lambda work: abs(work.times - 1), default=None),
    )
    return Detection(
        KIND, severity(one, held), facts, [one.rank], one.phase, one.since, one.until, one.cost_ms(),
        beside=why.evidence if why else {},
    )  # fmt: skip


def _named(one: LateRanks) -> Named | None:
    evidence = one.moment.evidence
    if evidence.named is None:
        return None
    last = int(one.world.step[-1]) if one.until is None else one.until
    return explains(evidence.named, one.world, one.rank, one.with_ranks, (one.since, last), one.over_ms)


def words(detection: Detection[Straggler]) -> Words:
    """Who, in which phase, by how much, what sets it apart, and what mending it gains."""
    said = over_words(detection) if detection.until_step is not None else _said(detection)
    facts, rank = detection.facts, detection.ranks[0]
    if facts.named is None:
        return said
    in_name = (
        f"Look in {facts.named}: rank {rank} spends {facts.named_ms:.1f} ms a step in it, its peers"
        f" {facts.peers_named_ms:.1f}."
    )
    return replace(said, advice=f"{in_name} {said.advice}" if said.advice else in_name)


def _said(detection: Detection[Straggler]) -> Words:
    rank, share = detection.ranks[0], detection.facts.share
    leads = {
        "irregular": f"rank {rank} is slow in {share:.0%} of its steps, now and then:",
        "ramp": f"rank {rank} becomes slower and slower:",
    }
    lead = leads.get(detection.facts.pattern or "", f"rank {rank} is slow:")
    return Words(_text(detection, lead), _advice(detection), lead=lead)


def _text(detection: Detection[Straggler], lead: str) -> str:
    facts, why, over = detection.facts, detection.facts.why, f"{detection.facts.phase_excess_ms:+.1f} ms"
    head = f"{lead} {over} {detection.phase}"
    if facts.hidden_since is not None:
        return fitting(f"{head} until step {facts.hidden_since - 1:,}", "; since then noise hides it")
    tail, short = gain_words(facts, "fixed")
    if why and why.began == "with" and len(head + why.short) <= len(fitting(head, why.short)):
        return fitting(head + why.short, tail, short)
    begun = since_words(facts, detection.since_step)
    first = [(begun, "")] if facts.changed == "others" else []
    for middle, end in ((begun, tail), *first, ("", tail), (begun, short), ("", short)):
        if len(head + middle + end) <= WIDTH:
            return head + middle + end
    return fitting(head)


def _advice(detection: Detection[Straggler]) -> str:
    """What to examine; shorter where the script itself names the place."""
    facts, rank = detection.facts, detection.ranks[0]
    if facts.gc_ms is not None:
        return caveat(
            facts,
            f"Python's garbage collector takes {facts.gc_ms:.1f} ms a step of rank {rank}: gc.freeze()"
            " before training, gc.disable() and gc.collect() every so many steps on all ranks at once.",
        )
    there = []
    if facts.host is not None:
        count, host = facts.host_ranks, facts.host
        who = f"All {count} ranks of {host} are late" if count > 1 else f"It is the only rank on {host}"
        there = [f"{who}, and none elsewhere: look at that machine first."]
    if facts.why and facts.why.began == "with":
        return caveat(facts, " ".join([*there, facts.why.advice]))
    remark = [facts.why.advice] if facts.why else []
    return caveat(facts, " ".join([*there, *_where_to_look(detection), _measured(facts), *remark]))


def _where_to_look(detection: Detection[Straggler]) -> list[str]:
    facts, rank, over_ms = detection.facts, detection.ranks[0], detection.facts.phase_excess_ms
    if rank == 0 and detection.phase == "other" and facts.host is None:
        script = "what a script does there on rank 0 only (printing, logging, a progress bar, metrics)"
        cost = f"costs all ranks {over_ms:.1f} ms a step; done every tenth step, {over_ms / 10:.1f}."
        return [f"Rank 0 alone is late between its steps: {script} {cost}"]
    return [ADVICE[detection.phase or "other"].format(rank=rank)] if facts.named is None else []


def _measured(facts: Straggler) -> str:
    """What is known of the cause, and what is not."""
    share = facts.starved_share
    core = "" if share is None else f" and it waits {share:.0%} of the time for a core"
    return f"{_size_of_batches(facts.work)}{core}; why it is slow was not measured."


def _size_of_batches(work: Work | None) -> str:
    if work is None:
        return "The sizes of batches were not measured"
    if work.is_alike:
        return "Its batches are as large as the others'"
    counts = f"It has {work.mine:.0f} {work.unit} a step, the others {work.theirs:.0f}"
    return f"{counts}, which accounts for {work.share:.0%} of it" if work.times > 1 else counts


KIND = Kind(
    "straggler",
    subject="rank",
    family="late",
    gone="{who} keep{s} up again",
    words=words,
    detect=detect,
    fewest_steps=SOME_STEPS,
    by_cost=True,
    changes_level=True,
    slows="rank {rank}'s {phase}",
    is_one_of_several=has_company,
)
