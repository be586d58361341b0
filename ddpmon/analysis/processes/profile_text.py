"""The text of a profile: its cost, and a table that compares the operators of ranks, the largest difference first."""

from __future__ import annotations

from ddpmon import numbers
from ddpmon.errors import UsageError
from ddpmon.messages import MAX_PROFILED_RANKS, MAX_WORLD, ProfiledRank, ProfileView
from ddpmon.plain import plain

PROFILE_COST = (
    "The profiler makes steps longer, most of all steps of many short operators. Starting and ending it pauses the rank"
    " once, for up to a second, or for longer on a GPU."
)
"""Text that is shown before a profile is made."""
FLOPS_COST = "Counting makes one step longer."
"""Text that is shown before operations are counted."""
MFU = "From now on, the chart mfu shows the MFU of these ranks, as if each step computed as much."
MIN_NAME, NUMBER, WHERE = 20, 10, 15
"""Widths in characters of an operator's name (minimum), of a column of numbers, and of the phase."""


def chosen_ranks(text: str) -> list[int]:
    """Return the ranks that a user lists, as in "2,0"; empty for the default. Raise UsageError for any other text."""
    parts = text.split(",") if text.strip() else []
    if not all(part.strip().isdecimal() and int(part) < MAX_WORLD for part in parts):
        raise UsageError(f"{text} is no list of ranks: put commas between them, as in 2,0")
    if len(parts) > MAX_PROFILED_RANKS:
        raise UsageError(f"{len(parts)} ranks are too many: profile at most {MAX_PROFILED_RANKS} at a time")
    return [int(part) for part in parts]


def profile_lines(view: ProfileView, rows: int) -> list[str]:
    """Return the lines of a profile: its cost, the trace, and the operators that differ most, at most `rows`."""
    lines = summary(view)
    return [*lines, "", *table(view, rows, 80)] if view.rows else lines


def summary(view: ProfileView) -> list[str]:
    """Return lines about each rank's profile (or why it has none), the steps that means leave out, and the trace."""
    lines = [_cost(one) for one in view.ranks]
    made = [one for one in view.ranks if one.answered]
    if not made or view.waits:
        return lines
    first, last = min(one.first_step for one in made), max(one.last_step for one in made)
    lines.append(
        f"Means and findings leave out steps {first:,} to {last:,}, in which a profiler started, ran or ended."
    )
    if any(one.left_out for one in made):
        lines.append(f"The trace leaves out the {max(one.left_out for one in made):,} shortest calls of a rank.")
    if any(one.peak_flops for one in made):
        return [*lines, MFU]
    lines.append(f"trace: {plain(view.trace)} (for ui.perfetto.dev)" if view.trace else "the trace cannot be written")
    return lines


def table(view: ProfileView, rows: int, width: int) -> list[str]:
    """Return the operators as lines of a table, with a heading."""
    made = [one for one in view.ranks if one.answered]
    several = len(made) > 1
    longest = max((len(plain(row.name)) + 1 for row in view.rows[:rows]), default=0)
    name = max(MIN_NAME, min(longest, width - WHERE - NUMBER * (len(made) + several)))
    heads = [f"rank {one.rank}" for one in made] + ["differ by"] * several
    lines = [f"{'ms in a step':<{name}}{'':{WHERE}}" + "".join(f"{head:>{NUMBER}}" for head in heads)]
    for row in view.rows[:rows]:
        values = row.spent_ms + [row.difference_ms] * several
        where = f"{row.phase}{' GPU' if any(row.device_ms) else ''}{' waits' if row.waits else ''}"
        numbers = "".join(f"{value:>{NUMBER}.2f}" for value in values)
        lines.append(f"{_cut(plain(row.name), name - 1):<{name}}{where:<{WHERE}}{numbers}")
    return lines


def _cost(one: ProfiledRank) -> str:
    if not one.answered:
        return plain(one.why) or f"rank {one.rank}: waiting for the end of {one.steps} steps"
    if one.peak_flops:
        share = f", at {one.usual_ms:.1f} ms a step an MFU of {100 * one.mfu:.3g}%" if one.mfu is not None else ""
        share += f" of {_flop(one.peak_flops)}/s" if share else ""
        return f"rank {one.rank}: {_flop(one.flops)} in a step{share}"
    usual = f", {one.usual_ms:.1f} ms before" if one.usual_ms else ""
    return (
        f"rank {one.rank}: {one.steps} steps of {one.step_ms:.1f} ms under the profiler{usual};"
        f" {one.cost_ms:.0f} ms to start and end it"
    )


def _flop(number: float) -> str:
    """Return a number of operations with its unit: 525 MFLOP."""
    text = numbers.short(number)
    return f"{text.rstrip('kMGT')} {text[len(text.rstrip('kMGT')) :]}FLOP"


def _cut(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"
