"""The run spends much of its time on something else than training: a hint, or a rank that keeps pausing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.steps.pauses import Pause, Times
from ddpmon.analysis.steps.recurrence import OCCURRENCES, goes_on
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import duration, fitting, named_ranks
from ddpmon.messages import OUT_OF_DATA, PAUSE, PAUSES, STARTING_WORKERS

SHARE = Threshold(
    0.05,
    of="share of the time since the first step that pauses of a kind take",
    why="A judgement: what takes less is not worth being made rarer.",
)
COSTLY = Threshold(
    0.1,
    of="the same, of pauses of an unknown kind on one rank, or of starts of DataLoader workers",
    why="A judgement: nobody may have meant them, and training takes 1.1 times as long.",
)
START_S = Threshold(
    1.0,
    of="s that a start of DataLoader workers takes, in the mean",
    why="A judgement: people notice that; shorter ones take a large share only of epochs that are hardly longer.",
)
FEWEST = Threshold(
    3,
    of="pauses of an unknown kind that are remembered",
    why="Two distances between them, the least that tell how often they come.",
)
MOSTLY = Threshold(
    0.8,
    of="share of the pauses of an unknown kind that one rank had",
    why="A judgement: two ranks by turns have half each, and one odd pause of five is let pass.",
)
ADVICE = {
    "evaluation": "Fewer or smaller evaluations, or each rank evaluating a part (DistributedSampler), cost less.",
    "checkpoint": "Checkpoints written less often, or by torch.distributed.checkpoint.async_save, cost less.",
    PAUSES[STARTING_WORKERS]: "persistent_workers=True keeps the workers of a DataLoader from one epoch to the next, if"
    " the DataLoader is made once, before the loop: what they do first (imports, worker_init_fn, opening files, reading"
    " an index) is then done once.",
    PAUSES[OUT_OF_DATA]: "As many batches on each rank (DistributedSampler) let all ranks train in every step.",
    "compilation": "Inputs of one shape (drop_last, padding to a few lengths) are compiled once;"
    " TORCH_LOGS=recompiles tells why it happens again.",
}


@dataclass(frozen=True)
class TimeInPauses:
    """What the run does instead, how long and how often."""

    of: str
    """Of PAUSES."""
    seconds: float
    count: int
    share: float
    every: int | None = None
    """Steps apart; where it is not known what a rank does."""
    usual_s: float = for_words(0.0)
    """How long each of them takes."""
    world_size: int = for_words(0)


def detect(moment: Moment) -> list[Detection[TimeInPauses]]:
    """One for each kind of pause that takes a share of the time worth having, the costliest first."""
    return sorted(
        _each(moment.evidence.times, moment.evidence.world_size), key=lambda detection: -detection.facts.share
    )


def _each(times: Times, world_size: int) -> Iterator[Detection[TimeInPauses]]:
    if times.training_s <= 0:  # it read or wrote a checkpoint and never came to train: nothing to take a share of
        return
    whole = times.training_s + sum(times.paused_s)
    for kind, (seconds, count) in enumerate(zip(times.paused_s, times.counts, strict=True)):
        name, share = PAUSES[kind], seconds / whole
        latest = [one for one in times.latest if one.kind == name]
        if share < SHARE.enter or not _recurs(count, latest, times.last):
            continue
        if kind != PAUSE:
            ranks = sorted({rank for one in latest for rank in one.ranks})
            facts = TimeInPauses(name, seconds, count, share, world_size=world_size)
            costly = kind == STARTING_WORKERS and COSTLY.reached(share) and START_S.reached(seconds / count)
            yield Detection(
                KIND,
                "warn" if costly else "info",
                facts,
                ranks if 0 < len(ranks) < world_size else [],
                since_step=latest[0].step if costly and latest else None,
                cost_ms=seconds * 1e3 / max(1, times.last) if costly else None,
                subject=name,
            )
        elif one := _unknown(latest, seconds, count, share, times.last):
            yield one


def _recurs(count: int, latest: Sequence[Pause], last: int) -> bool:
    """Return whether pauses of a kind came more than once and go on.

    Args:
        count: How many there were.
        latest: Those that are still remembered; others have taken the place of the rest.
        last: Number of the latest step.

    """
    if not OCCURRENCES.reached(count):
        return False
    return not OCCURRENCES.reached(len(latest)) or goes_on([one.step for one in latest], last)


def _unknown(
    latest: Sequence[Pause], seconds: float, count: int, share: float, last: int
) -> Detection[TimeInPauses] | None:
    """latest: the ones that are still remembered."""
    if len(latest) < FEWEST.enter:
        return None
    rank, most = Counter(one.ranks[0] for one in latest).most_common(1)[0]
    if most < MOSTLY.enter * len(latest):
        return None
    steps = [one.step for one in latest if one.ranks[0] == rank]
    apart = round(statistics.median(after - before for before, after in pairwise(steps)))
    usual = statistics.median(one.seconds for one in latest)
    return Detection(
        KIND,
        "warn" if COSTLY.reached(share) else "info",
        TimeInPauses(PAUSES[PAUSE], seconds, count, share, apart, usual),
        [rank],
        Counter(one.phase for one in latest).most_common(1)[0][0],
        steps[0],
        cost_ms=seconds * 1e3 / max(1, last),
        subject=PAUSES[PAUSE],
    )


def words(detection: Detection[TimeInPauses]) -> Words:
    """What it is, if that is known, and what share of the time it takes."""
    facts = detection.facts
    if facts.every is None:
        who = f" on {named_ranks(detection.ranks, facts.world_size)} alone" if detection.ranks else ""
        takes = f"{facts.of}{who} takes {facts.share:.0%} of the time since the first step"
        text = fitting(takes, f": {facts.count:,} times, {duration(facts.seconds)}")
        return Words(text, ADVICE.get(facts.of), lead=f"{takes}:")
    rank = detection.ranks[0]
    lead = f"rank {rank} pauses for {duration(facts.usual_s)} every {facts.every:,} steps, in {detection.phase}:"
    return Words(
        fitting(f"{lead} {facts.share:.0%} of the time"),
        f"Look at what rank {rank} does every {facts.every:,} steps: while it pauses, p on Inspect (or ddpmon stack)"
        " shows its Python line. Logging, sampling or file work belongs into a thread, or on all ranks at once.",
        lead=lead,
    )


KIND = Kind("pauses", subject="activity", gone="", words=words, detect=detect)
