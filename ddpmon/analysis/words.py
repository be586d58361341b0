"""Formatting of sentences that fit a line, and of numbers, sizes, ranks and times within them."""

from __future__ import annotations

import math
from collections.abc import Sequence

VERDICT_WIDTH = 76
"""Width of a verdict in columns: 80, the width of the smallest terminal, minus the frame of the header."""
NO_VALUE = "–"
"""The text that a table shows in place of a missing number."""
MOST_FINDINGS = 8
"""Maximum number of findings that a text lists. The JSON form has all findings."""


def fit_parts(head: str, *more: str) -> str:
    """Return the head, which is never shortened, followed by as many of the parts, in order, as fit on the line."""
    return fitting_parts(head, *((0, part) for part in more))


def fitting_parts(head: str, *parts: tuple[int, str]) -> str:
    """Return the head and the parts that fit on the line, in order. Parts with large numbers are dropped first."""
    left, kept = VERDICT_WIDTH - len(head), set()
    for place, (_, part) in sorted(enumerate(parts), key=lambda one: one[1][0]):
        if len(part) <= left:
            kept.add(place)
            left -= len(part)
    return head + "".join(part for place, (_, part) in enumerate(parts) if place in kept)


def format_count(number: int, one: str, many: str | None = None) -> str:
    """Format a number of things: 1 step, 1,800 steps. `many` is the plural where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def rank_list(ranks: Sequence[int], world_size: int) -> str:
    """Format ranks briefly: "all"; "0-3, 7"; or, if there are more than six spans, the first six and the number of
    ranks.
    """
    ordered = sorted(ranks)
    if len(ordered) == world_size and world_size > 1:
        return "all"
    spans: list[tuple[int, int]] = []
    for rank in ordered:
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    words = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    return ", ".join(words) if len(words) <= 6 else f"{', '.join(words[:6])} … ({len(ordered)})"


def named_ranks(ranks: Sequence[int], world_size: int) -> str:
    """Format ranks as a subject: rank 2; ranks 0, 2-3; both ranks; all 4 ranks. A `world_size` of 0 means unknown."""
    if len(ranks) == world_size > 1:
        return "both ranks" if world_size == 2 else f"all {world_size:,} ranks"
    return f"rank{'s' * (len(ranks) != 1)} {rank_list(ranks, world_size)}"


def pause_count(kind: str, count: int) -> str:
    """Format the number of pauses of a kind: 3x. A profile pauses nothing; its number is that of its slower steps."""
    return f"{format_count(count, 'step')} left out" if kind == "profiling" else f"{count:,}x"


def time_range(low_s: float, high_s: float) -> str:
    """Format an uncertain time (35 to 50 min, 3 to 5 h) in the smallest unit in which `high_s` is readable."""
    units = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"), (math.inf, 86_400.0, "days"))
    unit_s, name = next((size, name) for most, size, name in units if high_s < most)
    low, high = f"{low_s / unit_s:,.0f}", f"{high_s / unit_s:,.0f}"
    return f"{low} to {high} {name}" if low != high else f"about {high} {name}"


def lost_time(seconds: float) -> str:
    """Format the cost of a finding, rounded: 1.9 s, 12.3 s, 3m12s."""
    return f"{seconds:.1f} s" if seconds < 59.95 else duration(round(seconds))


def duration(seconds: float) -> str:
    """Format seconds: 8.2 s, 3m12s, 2h05m. From 10 s on, fractions are cut off as clocks do."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
