"""Shows profiles of ranks, as text and for programs: operators side by side, the largest difference first."""

from __future__ import annotations

from typing import Any

from ddpmon.messages import OperatorRow, ProfiledRank, ProfileView
from ddpmon.plain import plain

COST = (
    "Under the profiler a step takes longer, the more so the shorter its operators are; starting and ending it pauses"
    " the rank once for up to a second, on a GPU for some seconds."
)
"""Said before a profile is made."""
MAX_NAME, MIN_NAME, NUMBER, WHERE = 34, 20, 10, 15
"""Characters of an operator's name, of a column of numbers, and of the phase."""


def text(view: ProfileView, rows: int) -> list[str]:
    """Return lines: what the profile cost, the operators that differ most, at most so many rows, and the trace."""
    lines = costs(view)
    made = [one for one in view.ranks if one.answered]
    if not made:
        return lines
    lines += ["", *table(view, rows), ""]
    first, last = min(one.first_step for one in made), max(one.last_step for one in made)
    lines.append(f"Steps {first:,} to {last:,} are marked as profiled: no mean and no finding counts them.")
    if any(one.left_out for one in made):
        lines.append(f"The trace leaves out the {max(one.left_out for one in made):,} shortest calls of a rank.")
    lines.append(f"trace: {plain(view.trace)} (for ui.perfetto.dev)" if view.trace else "the trace cannot be written")
    return lines


def table(view: ProfileView, rows: int, width: int = 80) -> list[str]:
    """Return the operators as lines, with a heading."""
    made = [one for one in view.ranks if one.answered]
    several = len(made) > 1
    name = max(MIN_NAME, min(MAX_NAME, width - WHERE - NUMBER * (len(made) + several)))
    heads = [f"rank {one.rank}" for one in made] + ["differ by"] * several
    lines = [f"{'ms in a step':<{name}}{'':{WHERE}}" + "".join(f"{head:>{NUMBER}}" for head in heads)]
    for row in view.rows[:rows]:
        values = row.spent_ms + [row.difference_ms] * several
        where = f"{row.phase}{' GPU' if any(row.device_ms) else ''}{' waits' if row.waits else ''}"
        numbers = "".join(f"{value:>{NUMBER}.2f}" for value in values)
        lines.append(f"{_cut(plain(row.name), name - 1):<{name}}{where:<{WHERE}}{numbers}")
    return lines


def costs(view: ProfileView) -> list[str]:
    """Return what the profile of each rank cost, or why there is none."""
    return [_cost(one) for one in view.ranks]


def _cost(one: ProfiledRank) -> str:
    if not one.answered:
        return plain(one.why) or f"rank {one.rank}: waiting for the end of {one.steps} steps"
    usual = f", {one.usual_ms:.1f} ms before" if one.usual_ms else ""
    return (
        f"rank {one.rank}: {one.steps} steps of {one.step_ms:.1f} ms under the profiler{usual};"
        f" {one.cost_ms:.0f} ms to start and end it"
    )


def _cut(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def facts(view: ProfileView) -> dict[str, Any]:
    """Return the profile as `ddpmon profile --json` has it."""
    made = [one.rank for one in view.ranks if one.answered]
    return {
        "ranks": [
            {
                "rank": one.rank,
                "why": one.why or None,
                "steps": [one.first_step, one.last_step] if one.answered else None,
                "step_ms": round(one.step_ms, 3) if one.answered else None,
                "usual_step_ms": round(one.usual_ms, 3) or None,
                "cost_ms": round(one.cost_ms, 3) if one.answered else None,
            }
            for one in view.ranks
        ],
        "operators": [_operator(row, made) for row in view.rows],
        "trace": view.trace or None,
    }


def _operator(row: OperatorRow, ranks: list[int]) -> dict[str, Any]:
    return {
        "name": row.name,
        "phase": row.phase,
        "waits": row.waits,
        "difference_ms": round(row.difference_ms, 4),
        "per_rank": {
            str(rank): {"self_cpu_ms": cpu, "device_ms": device, "calls": calls}
            for rank, cpu, device, calls in zip(ranks, row.self_ms, row.device_ms, row.calls, strict=True)
        },
    }
