"""The report as a dict of plain values: schema 1 of `ddpmon report --format json`. Unknown values are None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ddpmon.analysis import gpu_hours
from ddpmon.analysis.compare import EXCLUDED_FIRST_STEPS, MIN_COMPARED_STEPS, median_interval
from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.summary import Summary
from ddpmon.analysis.steps.what_if import gain_all_even, gain_if_like_peers, gain_with_even_transfer
from ddpmon.analysis.steps.world import World
from ddpmon.messages import (
    END_STATES,
    GPU,
    OWN_PHASES,
    PHASES,
    SAMPLED,
    EfficiencyView,
    Finding,
    RankView,
    Sample,
    Snapshot,
    TimesView,
    models_with_loss,
)

REPORT_SCHEMA = 1
"""Version of the report's fields, which increases when a field changes its meaning or is removed."""
MAX_GAINS = 8
"""Maximum number of ranks whose gain the report simulates. Ranks with the most own time are chosen."""
FINDING = (
    "kind", "severity", "text", "ranks", "phase", "since_step", "until_step", "cost_ms", "evidence", "advice",
    "cost_s", "episodes", "reported_at", "ended_at",
)  # fmt: skip
"""The fields of a finding in the report; the other fields are for screens only."""


def run_report(
    snapshot: Snapshot,
    world: World | None,
    summary: Summary | None,
    since_start: StepSums | None = None,
    stale_s: float | None = None,
) -> dict[str, Any]:
    """Return the report of a run.

    Args:
        snapshot: The run at its end, or now.
        world: The steps that the report covers.
        summary: Means of these steps.
        since_start: Sums since the start of the run.
        stale_s: Age of the snapshot in seconds, if the run may still be running but no hub answers.

    """
    run = snapshot.run
    ended = snapshot.state in END_STATES
    gradients = summary.sums if summary and summary.sums.gradient_bytes else None
    collectives = snapshot.all_reduce if snapshot.all_reduce and not gradients else None
    waits = summary if summary and "wait" not in snapshot.unmeasured else None
    gains = _what_if(world, summary, snapshot.findings) if world and summary and len(world.ranks) > 1 else []
    return {
        "schema": REPORT_SCHEMA,
        "run": {
            "id": run.id,
            "name": run.name,
            "world_size": run.world_size,
            "nnodes": run.nnodes,
            "state": snapshot.state if ended else "running",
            "live_state": None if ended or stale_s is not None else snapshot.state,
            "stale_s": json_number(stale_s, 1),
            "exit_code": run.exit_code,
            "started_at": run.started_at,
            "ended_at": run.ended_at,
            "parallelism": snapshot.parallelism or None,
            "unmeasured": snapshot.unmeasured,
            "measured": snapshot.measured or None,
            "restarts": len(run.attempts),
            "attached": run.attached,
            "attempts": [msgspec.to_builtins(attempt) for attempt in run.attempts],
        },
        "steps": {
            "count": snapshot.step,
            "total": snapshot.total_steps,
            "epoch": snapshot.training_epoch,
            "epochs": snapshot.training_epochs,
            "window": list(summary.window) if summary else None,
            "step_ms": {
                name: json_number(getattr(summary, f"step_ms_{name}", None)) for name in ("mean", "p50", "p95", "max")
            },
            "p50_interval_ms": _interval(world),
            "samples_per_s": json_number(snapshot.samples_per_s),
            "losses_of": models_with_loss(snapshot),
            "records_lost": snapshot.records_lost,
            "refused": [msgspec.structs.asdict(one) for one in snapshot.refused],
            "accumulation": snapshot.accumulation,
        },
        "time": _times(snapshot.times, (run.ended_at or snapshot.at) - run.started_at),
        "ranks": [_rank(view, snapshot.window) for view in snapshot.ranks],
        "efficiency": _efficiency(waits.sums.efficiency if waits else None),
        # `since_start` is None if the report covers all steps.
        "efficiency_since_start": {"window": [since_start.first, since_start.last]}
        | _efficiency(since_start.efficiency)
        if waits and since_start and waits.window[0] > since_start.first
        else None,
        "all_reduce": {
            **_gradients(gradients),
            "bus_bandwidth_gb_s": json_number(snapshot.bus_bandwidth_gb_s),
            "buckets": [msgspec.to_builtins(bucket) for bucket in snapshot.buckets],
        },
        "collectives": {
            "wait_ms": json_number(collectives.wait_ms),
            "transfer_ms": json_number(collectives.transfer_ms),
            "share": json_number(collectives.exposed_share),
        }
        if collectives
        else None,
        "what_if": [entry for entry in gains if entry["phase"] not in snapshot.unmeasured],
        "cost": gpu_hours.cost(snapshot, (since_start or waits.sums).efficiency.parallel if waits else None),
        "verdict": snapshot.verdict,
        "verdict_findings": snapshot.verdict_facts.findings if snapshot.verdict_facts else [],
        "clocks": [msgspec.to_builtins(clock) for clock in snapshot.clocks],
        "findings": [
            finding_for_report(finding) | {"lost_hours": gpu_hours.lost_hours(snapshot, finding)}
            for finding in snapshot.findings
        ],
    }


def _interval(world: World | None) -> list[float | None] | None:
    """Return the interval of the median step; None if there are too few steps."""
    if world is None or len(world) < EXCLUDED_FIRST_STEPS + MIN_COMPARED_STEPS:
        return None
    return [json_number(ms) for ms in median_interval(world)]


def finding_for_report(finding: Finding) -> dict[str, Any]:
    """Return a finding in the form that reports have."""
    built = msgspec.to_builtins(finding)
    return {name: built[name] for name in FINDING}


def _times(times: TimesView | None, seconds: float) -> dict[str, Any] | None:
    """Return training and pauses in seconds, with each pause's share of the run; None before the first step."""
    if times is None:
        return None
    return {
        "start_s": json_number(times.start_s, 1),
        "training_s": json_number(times.training_s, 1),
        "pauses": {
            kind: {
                "seconds": json_number(spent, 1),
                "count": times.counts.get(kind, 0),
                "share": json_number(min(1.0, spent / seconds) if seconds > 0 else 0.0),
            }
            for kind, spent in times.paused_s.items()
        },
    }


def _gradients(sums: StepSums | None) -> dict[str, float | None]:
    """Return the cost of the gradient synchronisation in a mean step; the values are None if there was none."""
    if sums is None:
        return dict.fromkeys(("bytes_per_step", "wait_ms", "transfer_ms", "exposed_share"))
    return {
        "bytes_per_step": round(sums.gradient_bytes / sums.steps),
        "wait_ms": json_number(sums.exposed_wait_ms / sums.steps),
        "transfer_ms": json_number((sums.exposed_ms - sums.exposed_wait_ms) / sums.steps),
        "exposed_share": json_number(sums.exposed_ms / max(sums.length_ms, 1e-9)),
    }


def _efficiency(tree: EfficiencyView | None) -> dict[str, float | None]:
    return {name: json_number(getattr(tree, name, None)) for name in EfficiencyView.__struct_fields__}


def _rank(view: RankView, window: tuple[int, int] | None) -> dict[str, Any]:
    return {
        "rank": view.rank,
        "host": view.host or None,
        "pid": view.pid or None,
        "device": view.device if view.pid else None,
        "steps": view.steps,
        "window": list(view.window or window or ()) or None if view.own_ms is not None else None,
        "own_ms": json_number(view.own_ms),
        "over_median": json_number(view.over_median),
        "phases_ms": {name: json_number(view.phase_ms(name)) for name in PHASES},
        "critical_share": json_number(view.critical_share),
        "late_ms": json_number(view.late_ms),
        "loss": json_number(view.loss, 6),
        "samples_per_s": json_number(view.samples_per_s),
        "gpu": _gpu(view.sample) if view.sample is not None and view.has_gpu_sample else None,
        "exit": {"code": view.exit.code, "signal": view.exit.signal, "error": view.exit.error} if view.exit else None,
        "tokens_per_s": json_number(view.tokens_per_s),
        "learning_rate": view.learning_rate,
        "gc_ms": json_number(view.gc_ms),
        **{
            row.reported or row.field: value if row.unit.whole else json_number(value)
            for row in SAMPLED
            if row.where != GPU
            for value in (row.get(view),)
        },
        "named_ms": {name: json_number(value) for name, value in view.named_ms.items()},
    }


def _gpu(sample: Sample) -> dict[str, Any]:
    values = {row.field.removeprefix("gpu_"): getattr(sample, row.field) for row in SAMPLED if row.where == GPU}
    return values | {"throttled": sample.gpu_throttled}


def _what_if(world: World, summary: Summary, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return gains for the ranks with the most own time, for the phases of the first of these ranks, for all late ranks
    together, and for all ranks.

    Entries without a rank are about all ranks: if the slowest rank of each step took the others' median (phase None),
    if no rank waited (phase "wait"), and if every transfer took the median time (phase "transfer").
    """
    slowest = summary.own_ms.argsort()[::-1][:MAX_GAINS].tolist()
    gains = [
        {"rank": world.ranks[column], "phase": None, "gain": gain_if_like_peers(world, column)} for column in slowest
    ]
    gains.sort(key=lambda entry: -entry["gain"])
    first = gains[0]["rank"]
    gains += [
        {"rank": first, "phase": each, "gain": gain_if_like_peers(world, world.ranks.index(first), each)}
        for each in OWN_PHASES
    ]
    several = [f for f in findings if f.is_lasting and kind_of(f).is_one_of_several(f)]
    late = sorted({rank for f in several for rank in f.ranks} & set(world.ranks))
    if len(late) > 1:
        together = gain_if_like_peers(world, [world.ranks.index(rank) for rank in late])
        gains.append({"rank": None, "ranks": late, "phase": None, "gain": together})
    of_all = {
        None: gain_all_even(world),
        "wait": summary.sums.gain_without_waiting,
        "transfer": gain_with_even_transfer(world),
    }
    gains += [{"rank": None, "phase": phase, "gain": each} for phase, each in of_all.items()]
    return [entry | {"gain": round(entry["gain"], 4)} for entry in gains]


def json_number(value: float | None, digits: int = 4) -> float | None:
    """Return a rounded number that JSON can represent; None if the number is None or not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
