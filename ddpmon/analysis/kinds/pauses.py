"""Findings about pauses in training that cost much of the run's time, such as evaluations and checkpoints."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.kinds.relevance import COSTLY, RELEVANT, goes_on
from ddpmon.analysis.statistics.excess import MOSTLY
from ddpmon.analysis.steps.pauses import LEAST_US, Pause
from ddpmon.analysis.words import duration, named_ranks
from ddpmon.messages import OUT_OF_DATA, PAUSE, PAUSES, PROFILING, STARTING_WORKERS, Finding, Loader

MIN_PAUSES = 3
"""Minimum number of pauses of unknown kind. Three pauses have two intervals, the minimum for a rhythm."""
PAUSE_ADVICE = {
    "evaluation": "Evaluate less often or on less data, or let each rank evaluate a part (DistributedSampler).",
    "checkpoint": "Write checkpoints less often, or with torch.distributed.checkpoint.async_save.",
    PAUSES[OUT_OF_DATA]: "Give each rank the same number of batches (DistributedSampler), so that all ranks train in"
    " every step.",
    "compilation": "torch.compile compiles again for each new input shape: use drop_last, or pad to a few lengths."
    " TORCH_LOGS=recompiles prints the reasons.",
}


@Kind(
    "info",
    "{takes}:| {share:.0%} of the time|, {count:,} times",
    "{look}",
    subject="activity",
    remedy="Evaluate and save less often, or on one rank from a copy of the model. If ddpmon does not know the "
    "cause of a pause, look at the line of code in the finding.",
)
def pauses(moment: Moment) -> list[Finding]:
    """The run spends much of its time on something other than training, or one rank keeps pausing.

    Each kind of pause with a large share of the time has its own finding. The finding is a hint, or a warning if one
    rank keeps pausing.
    """
    return sorted(_each(moment), key=lambda one: -one.evidence["share"])


def _each(moment: Moment) -> Iterator[Finding]:
    times = moment.evidence.times
    # The script did not train, so there is no time to compute a share of.
    if times.training_s <= 0:
        return
    whole = times.training_s + sum(times.paused_s)
    for kind, (seconds, count) in enumerate(zip(times.paused_s, times.counts, strict=True)):
        if kind == PROFILING:  # The user requested the profile.
            continue
        name, share = PAUSES[kind], seconds / whole
        latest = [one for one in times.latest if one.kind == name]
        # `latest` may have dropped older pauses of this kind. Then only the count shows that such pauses recur.
        recurs = count > 1 and (len(latest) < 2 or goes_on([one.step for one in latest], times.last))
        if not RELEVANT.is_reached(share) or not recurs:
            continue
        facts = {"of": name, "seconds": seconds, "count": count, "share": share}
        cost_ms = seconds * 1e3 / max(1, times.last)
        if kind == PAUSE:
            yield from _unknown(moment, latest, facts, cost_ms)
            continue
        ranks = sorted({rank for one in latest for rank in one.ranks})
        ranks = ranks if 0 < len(ranks) < moment.evidence.world_size else []
        who = f" on {named_ranks(ranks, moment.evidence.world_size)} alone" if ranks else ""
        beginning = "the attach" if moment.evidence.attached else "the first step"
        takes, look = f"{name}{who} takes {share:.0%} of the time since {beginning}", PAUSE_ADVICE.get(name, "")
        costly = False
        headline: str | None = "{takes}||: {count:,} times, {took}"
        if kind == STARTING_WORKERS:
            takes = f"each start of DataLoader workers{who} takes {duration(seconds / count)}"
            headline, look = None, _keep_workers(loader for _, loader in moment.evidence.loaders)
            costly = seconds / count * 1e6 >= LEAST_US.enter and COSTLY.is_reached(share)
        yield moment.finding(
            facts, ranks, severity="warn" if costly else "info", headline=headline, subject=name,
            beside={"takes": takes, "look": look, "took": duration(seconds)},
            since_step=latest[0].step if costly and latest else None, cost_ms=cost_ms if costly else None,
        )  # fmt: skip


def _keep_workers(loaders: Iterable[Loader]) -> str:
    """Return the advice to start workers only once, with persistent workers or a DataLoader that is reused."""
    kept = {loader.persistent for loader in loaders if loader.workers}
    once = "workers then do their setup (imports, worker_init_fn, opening files, reading an index) only once."
    if kept == {True}:
        return (
            "The DataLoader has persistent_workers=True, but the script makes a new DataLoader for each epoch."
            f" Make the DataLoader once, before the loop over epochs; {once}"
        )
    return f"Set persistent_workers=True, and make the DataLoader once, before the loop over epochs; {once}"


def _unknown(moment: Moment, latest: Sequence[Pause], facts: dict[str, Any], cost_ms: float) -> Iterator[Finding]:
    """Yield a finding about pauses of an unknown kind if one rank had most of them.

    Args:
        moment: The moment of the judgement.
        latest: The latest pauses of unknown kind.
        facts: The evidence so far.
        cost_ms: Cost of the pauses in a mean step.

    """
    rank, most = next(iter(Counter(one.ranks[0] for one in latest).most_common(1)), (0, 0))
    if len(latest) < MIN_PAUSES or not MOSTLY.is_reached(most / len(latest)):
        return
    steps = [one.step for one in latest if one.ranks[0] == rank]
    every = round(statistics.median(after - before for before, after in pairwise(steps)))
    phase = Counter(one.phase for one in latest).most_common(1)[0][0]
    yield moment.finding(
        {**facts, "every": every},
        [rank],
        phase,
        severity="warn" if COSTLY.is_reached(facts["share"]) else "info",
        headline="{who} pauses for {usual} every {every:,} steps, in {phase}:| {share:.0%} of the time",
        advice="Look at what {who} does every {every:,} steps: during a pause, p on Inspect (or ddpmon stack) shows the"
        " Python line. Move logging, sampling or file work to a thread, or do it on all ranks at once.",
        beside={"usual": duration(statistics.median(one.seconds for one in latest)), "phase": phase},
        since_step=steps[0],
        cost_ms=cost_ms,
        subject=PAUSES[PAUSE],
    )
