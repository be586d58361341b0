"""Converts a profile of ranks to JSON values."""

from __future__ import annotations

from typing import Any

from ddpmon.messages import OperatorRow, ProfileView


def facts(view: ProfileView) -> dict[str, Any]:
    """Return the profile as `ddpmon profile --json` prints it."""
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
                "flops": one.flops or None,
                "mfu": one.mfu,
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
