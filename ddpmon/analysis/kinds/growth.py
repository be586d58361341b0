"""Memory that grows: which one, how fast, and when all of it is used up. One rule for hosts and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddpmon.analysis.evidence import Memory
from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.run_state import STARTING_S
from ddpmon.analysis.statistics.trend import Trend
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import GIB, MIB, fitting_parts, named_ranks, time_range
from ddpmon.messages import Finding

HARMFUL_PER_HOUR = Threshold(
    1.0,
    of="times its size that a memory grows by in an hour",
    why="A judgement: its size again within an hour ends a run overnight.",
)
FULL_WITHIN_S = Threshold(
    43_200.0,
    of="s until all memory is used up, at the pace at which it grows",
    why="A judgement: half a day is a night, in which it ends the run.",
    below=True,
)
CERTAIN = Threshold(
    3.0,
    of="times the shortest time until all memory is used up that the longest is, for it to be told",
    why="A judgement: with a time that may be three times as long one can still plan.",
    below=True,
)
KEPT = (
    "Look for what is kept from step to step: losses summed with their graph (use .item() or .detach()), lists of"
    " outputs"
)


class Growth(NamedTuple):
    """A memory that grows."""

    memory: Memory
    name: str
    """Of a field of `Memory`."""
    trend: Trend


def growing(moment: Moment, *names: str) -> list[Growth]:
    """Return the memories under these names that grow, of ranks that have started up; the fastest first."""
    found = [
        Growth(one, name, one.trends[name])
        for one in moment.evidence.memory
        for name in names
        if STARTING_S.reached(one.trained_s) and name in one.trends
    ]
    return sorted(found, key=lambda one: -one.trend.per_s)


def growth_finding(
    moment: Moment,
    kind: Kind,
    grown: Sequence[Growth],
    together: Sequence[Growth],
    left_bytes: int | None,
    *,
    lead: str,
    advice: str,
) -> Finding:
    """Return the finding about memories that grow, with the fastest of them.

    Args:
        moment: The moment of the judgement.
        kind: Of the finding.
        grown: All of these memories, the fastest first.
        together: Those of them that use up the same memory as the fastest one.
        left_bytes: Of that memory; None: not known.
        lead: The beginning of the text, up to the pace.
        advice: A sentence without its full stop.

    """
    first = grown[0]
    size, per_s = int(getattr(first.memory, first.name) or 0), first.trend.per_s
    ranks = sorted({one.memory.rank for one in grown})
    full, span_s, soon = "", None, False
    if left_bytes is not None:
        mean_s, longest_s, shortest_s = (
            left_bytes / sum(paces) for paces in zip(*(one.trend for one in together), strict=True)
        )
        soon = FULL_WITHIN_S.reached(mean_s)
        if CERTAIN.reached(longest_s / max(shortest_s, 1e-9)):
            span_s, full = [round(shortest_s), round(longest_s)], time_range(shortest_s, longest_s)
    text = fitting_parts(
        f"{lead} {per_s * 60 / MIB:,.0f} MiB a minute",
        (1, f", {size / GIB:.1f} GiB now"),
        (0, f"; full in {full}" if full else ""),
        (2, f"; grows on {named_ranks(ranks, moment.evidence.world_size)}" if len(ranks) > 1 else ""),
    )
    whole = f" At this pace all memory is used up in {full}." if full else ""
    words = Words(text, f"{advice}. In an hour it is {per_s * 3600 / GIB:,.1f} GiB more.{whole}")
    times = per_s * 3600 / max(size, 1)
    evidence = {"bytes_per_s": per_s, first.name: float(size), "times_per_hour": times}
    harmful = soon or HARMFUL_PER_HOUR.reached(times)
    return kind.finding("warn" if harmful else "info", words, ranks, evidence=evidence, beside={"full_in_s": span_s})
