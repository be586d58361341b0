"""What a run spends its time on besides training, where that is worth having: a hint, or a rank that keeps pausing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from ddpmon.analysis.pauses import Pause, Times
from ddpmon.analysis.verdict import duration, rank_list
from ddpmon.analysis.words import fitting
from ddpmon.messages import PAUSE, PAUSES, Finding

SHARE = 0.05
"""Of the time since the first step, from which on it is told."""
COSTLY = 0.1
"""The same, from which on pauses of an unknown kind are a fault."""
FEWEST = 3
MOSTLY = 0.8
"""Share of the pauses of an unknown kind that one rank must have had."""
ADVICE = {
    "evaluation": "Fewer or smaller evaluations, or each rank evaluating a part (DistributedSampler), cost less.",
    "checkpoint": "Checkpoints written less often, or by torch.distributed.checkpoint.async_save, cost less.",
    "compilation": "Inputs of one shape (drop_last, padding to a few lengths) are compiled once;"
    " TORCH_LOGS=recompiles tells why it happens again.",
}


def besides(times: Times, world_size: int) -> list[Finding]:
    """A finding for each kind of pause that takes a share of the time worth having, the costliest first."""
    whole = times.training_s + sum(times.paused_s)
    found = []
    for kind, (seconds, count) in enumerate(zip(times.paused_s, times.counts, strict=True)):
        if whole <= 0 or seconds < SHARE * whole or not count:
            continue
        those = [one for one in times.latest if one.kind == PAUSES[kind]]
        if kind != PAUSE:
            found.append(_known(PAUSES[kind], those, seconds, count, seconds / whole, world_size))
        elif one := _unknown(those, seconds, count, seconds / whole, times.last):
            found.append(one)
    return sorted(found, key=lambda finding: -finding.evidence["share"])


def _known(kind: str, those: Sequence[Pause], seconds: float, count: int, share: float, world_size: int) -> Finding:
    ranks = sorted({rank for one in those for rank in one.ranks})
    alone = 0 < len(ranks) < world_size
    who = f" on rank {rank_list(ranks, world_size)} alone" if alone else ""
    return Finding(
        "pauses",
        "info",
        fitting(
            f"{kind}{who} takes {share:.0%} of the time since the first step", f": {_times(count)}{duration(seconds)}"
        ),
        ranks if alone else [],
        evidence={"of": kind, "seconds": seconds, "count": count, "share": share},
        advice=ADVICE.get(kind),
        subject=kind,
    )


def _unknown(those: Sequence[Pause], seconds: float, count: int, share: float, last: int) -> Finding | None:
    """those: the ones that are still remembered."""
    if len(those) < FEWEST:
        return None
    rank, most = Counter(one.ranks[0] for one in those).most_common(1)[0]
    if most < MOSTLY * len(those):
        return None
    steps = [one.step for one in those if one.ranks[0] == rank]
    apart = round(statistics.median(after - before for before, after in pairwise(steps)))
    phase = Counter(one.phase for one in those).most_common(1)[0][0]
    usual = statistics.median(one.seconds for one in those)
    return Finding(
        "pauses",
        "warn" if share >= COSTLY else "info",
        fitting(f"rank {rank} pauses for {duration(usual)} every {apart:,} steps, in {phase}: {share:.0%} of the time"),
        [rank],
        phase,
        steps[0],
        cost_ms=seconds * 1e3 / max(1, last),
        evidence={"of": PAUSES[PAUSE], "seconds": seconds, "count": count, "share": share, "every": apart},
        advice=(
            f"Look at what rank {rank} does every {apart:,} steps: while it pauses, p on Inspect (or ddpmon stack)"
            " shows its Python line. Logging, sampling or file work belongs into a thread, or on all ranks at once."
        ),
        subject=PAUSES[PAUSE],
    )


def _times(count: int) -> str:
    return f"{count:,} times, " if count > 1 else ""
