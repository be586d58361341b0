"""The run spends much of its time on something else than training: a hint, or a rank that keeps pausing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import COSTLY, RELEVANT
from ddpmon.analysis.steps.pauses import LEAST_US, Pause
from ddpmon.analysis.steps.recurrence import goes_on
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import duration, fitting, named_ranks
from ddpmon.messages import OUT_OF_DATA, PAUSE, PAUSES, STARTING_WORKERS, Finding, Setup

FEWEST = 3
"""Pauses of an unknown kind that are remembered: two distances, the least that tell how often they come."""
MOSTLY = Threshold(
    0.8,
    of="share of the pauses of an unknown kind that one rank had",
    why="A judgement: two ranks by turns have half each, and one odd pause of five is let pass.",
)
ADVICE = {
    "evaluation": "Fewer or smaller evaluations, or each rank evaluating a part (DistributedSampler), cost less.",
    "checkpoint": "Checkpoints written less often, or by torch.distributed.checkpoint.async_save, cost less.",
    PAUSES[OUT_OF_DATA]: "As many batches on each rank (DistributedSampler) let all ranks train in every step.",
    "compilation": "Inputs of one shape (drop_last, padding to a few lengths) are compiled once;"
    " TORCH_LOGS=recompiles tells why it happens again.",
}


def detect(moment: Moment) -> list[Finding]:
    """One for each kind of pause that takes a share of the time worth having, the costliest first."""
    return sorted(_each(moment.evidence), key=lambda one: -one.evidence["share"])


def _each(whole_evidence: Evidence) -> Iterator[Finding]:
    times, world_size = whole_evidence.times, whole_evidence.world_size
    if times.training_s <= 0:  # it read or wrote a checkpoint and never came to train: nothing to take a share of
        return
    whole = times.training_s + sum(times.paused_s)
    for kind, (seconds, count) in enumerate(zip(times.paused_s, times.counts, strict=True)):
        name, share = PAUSES[kind], seconds / whole
        latest = [one for one in times.latest if one.kind == name]
        if not RELEVANT.reached(share) or not _recurs(count, latest, times.last):
            continue
        evidence = {"of": name, "seconds": seconds, "count": count, "share": share}
        cost_ms = seconds * 1e3 / max(1, times.last)
        if kind == PAUSE:
            if one := _unknown(latest, evidence, cost_ms):
                yield one
            continue
        ranks = sorted({rank for one in latest for rank in one.ranks})
        ranks = ranks if 0 < len(ranks) < world_size else []
        who = f" on {named_ranks(ranks, world_size)} alone" if ranks else ""
        takes = f"{name}{who} takes {share:.0%} of the time since the first step"
        text, advice, lead = fitting(takes, f": {count:,} times, {duration(seconds)}"), ADVICE.get(name), f"{takes}:"
        if kind == STARTING_WORKERS:
            lead = f"each start of DataLoader workers{who} takes {duration(seconds / count)}:"
            text = fitting(f"{lead} {share:.0%} of the time", f", {count:,} times")
            advice = _keep_workers(whole_evidence.setups.values())
        is_noticed = seconds / count * 1e6 >= LEAST_US.enter
        costly = kind == STARTING_WORKERS and is_noticed and COSTLY.reached(share)
        yield KIND.finding(
            "warn" if costly else "info",
            Words(text, advice, lead=lead),
            ranks,
            evidence=evidence,
            since_step=latest[0].step if costly and latest else None,
            cost_ms=cost_ms if costly else None,
            subject=name,
        )


def _keep_workers(setups: Iterable[Setup]) -> str:
    """Return how to start the workers once: they are kept by a DataLoader that lives as long as they do."""
    kept = {loader.persistent for setup in setups for loader in setup.loaders if loader.workers}
    once = "what they do first (imports, worker_init_fn, opening files, reading an index) is then done once."
    if kept == {True}:
        return (
            "The DataLoader has persistent_workers=True, but a new DataLoader is made each time: make it once, before"
            f" the loop over epochs; {once}"
        )
    return (
        "persistent_workers=True keeps the workers of a DataLoader from one epoch to the next, if the DataLoader is"
        f" made once, before the loop: {once}"
    )


def _recurs(count: int, latest: Sequence[Pause], last: int) -> bool:
    """Return whether pauses of a kind came more than once and go on.

    Args:
        count: How many there were.
        latest: Those that are still remembered; others have taken the place of the rest.
        last: Number of the latest step.

    """
    return count > 1 and (len(latest) < 2 or goes_on([one.step for one in latest], last))


def _unknown(latest: Sequence[Pause], evidence: dict[str, Any], cost_ms: float) -> Finding | None:
    """Return the finding of pauses of an unknown kind where one rank had most. latest: those still remembered."""
    if len(latest) < FEWEST:
        return None
    rank, most = Counter(one.ranks[0] for one in latest).most_common(1)[0]
    if not MOSTLY.reached(most / len(latest)):
        return None
    steps = [one.step for one in latest if one.ranks[0] == rank]
    every = round(statistics.median(after - before for before, after in pairwise(steps)))
    usual = statistics.median(one.seconds for one in latest)
    phase = Counter(one.phase for one in latest).most_common(1)[0][0]
    lead = f"rank {rank} pauses for {duration(usual)} every {every:,} steps, in {phase}:"
    words = Words(
        fitting(f"{lead} {evidence['share']:.0%} of the time"),
        f"Look at what rank {rank} does every {every:,} steps: while it pauses, p on Inspect (or ddpmon stack)"
        " shows its Python line. Logging, sampling or file work belongs into a thread, or on all ranks at once.",
        lead=lead,
    )
    return KIND.finding(
        "warn" if COSTLY.reached(evidence["share"]) else "info",
        words,
        [rank],
        phase,
        evidence={**evidence, "every": every},
        since_step=steps[0],
        cost_ms=cost_ms,
        subject=PAUSES[PAUSE],
    )


KIND = Kind("pauses", subject="activity", detect=detect)
