"""Comparison of a run's speed with earlier runs of the same script, from their reports."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from ddpmon import runs
from ddpmon.analysis.compare import EXCLUDED_FIRST_STEPS, MIN_COMPARED_STEPS, median_interval
from ddpmon.analysis.pace import Difference, Pace, difference
from ddpmon.analysis.steps.summary import Summary
from ddpmon.analysis.steps.world import World
from ddpmon.errors import RunNotFoundError
from ddpmon.messages import PHASES, Phase
from ddpmon.runs import Run, plain_file

MAX_RUNS = 3
MAX_CANDIDATES = 50
"""Largest number of earlier runs that are examined. The latest runs are examined."""
MAX_REPORT_BYTES = 1 << 26
"""Largest size in bytes of a report.json that is read."""
_NUMBER = re.compile(r"[-+]?[\d.][\d.,_eE+-]*[kKmMgG]?")


class _Steps(msgspec.Struct):
    window: list[int] | None = None
    step_ms: dict[str, float | None] = {}
    p50_interval_ms: tuple[float, float] | None = None
    samples_per_s: float | None = None


class _Rank(msgspec.Struct):
    phases_ms: dict[str, float | None] = {}


class _AllReduce(msgspec.Struct):
    bytes_per_step: float | None = None


class _Report(msgspec.Struct):
    """The parts of a report that the comparison needs."""

    steps: _Steps = msgspec.field(default_factory=_Steps)
    ranks: list[_Rank] = []
    all_reduce: _AllReduce = msgspec.field(default_factory=_AllReduce)


def comparison_key(run: Run) -> tuple[object, ...]:
    """Return a key that is equal for runs whose speeds can be compared. Numbers in their arguments may differ."""
    words = tuple(
        "=".join("#" if _NUMBER.fullmatch(part) else part for part in word.split("=")) for word in run.script_args
    )
    return run.name, run.script, run.cwd, run.world_size, run.nnodes, words


def earlier_paces(run: Run) -> list[Pace]:
    """Return the speeds of the latest comparable runs before this one, the latest first."""
    paces: list[Pace] = []
    for run_id in [each for each in runs.all_ids() if each < run.id][: -MAX_CANDIDATES - 1 : -1]:
        try:
            other = runs.load(run_id)
        except RunNotFoundError:
            continue  # The folder is damaged.
        if not other.ended or comparison_key(other) != comparison_key(run):
            continue
        path = runs.run_dir(run_id) / "report.json"
        try:
            pace = _pace(msgspec.json.decode(plain_file.content(path, MAX_REPORT_BYTES), type=_Report))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if pace is not None:
            paces.append(pace)
        if len(paces) == MAX_RUNS:
            break
    return paces


def pace_of(summary: Summary, world: World | None = None) -> Pace | None:
    """Return the speed of a running run over the analysed steps, with its confidence interval if `world` has these
    steps.
    """
    rates, sums = summary.samples_per_s, summary.sums
    step_s = summary.step_ms_mean / 1e3
    return _checked(
        summary.window,
        summary.step_ms_p50,
        summary.phases_ms.tolist(),
        0.0 if math.isnan(total := float(rates.sum())) else total * step_s,
        sums.gradient_bytes / sums.steps,
        median_interval(world)
        if world is not None and len(world) >= EXCLUDED_FIRST_STEPS + MIN_COMPARED_STEPS
        else None,
    )


def _pace(report: _Report) -> Pace | None:
    steps = report.steps
    phases = [[rank.phases_ms.get(name) for name in PHASES] for rank in report.ranks]
    return _checked(
        steps.window,
        steps.step_ms.get("p50"),
        [[ms for ms in rank if ms is not None] for rank in phases if None not in rank],
        (steps.samples_per_s or 0.0) * (steps.step_ms.get("mean") or 0.0) / 1e3,
        report.all_reduce.bytes_per_step or 0.0,
        steps.p50_interval_ms,
    )


def _checked(
    window: Sequence[int] | None,
    step_ms: float | None,
    phases_ms: list[list[float]],
    samples: float,
    size: float,
    interval_ms: tuple[float, float] | None,
) -> Pace | None:
    """Return a speed, or None if the speed covers too few steps or has impossible values."""
    if (
        window is None
        or len(window) != 2
        or window[1] - window[0] + 1 < EXCLUDED_FIRST_STEPS + MIN_COMPARED_STEPS
        or not phases_ms
    ):
        return None
    columns = list(zip(*phases_ms, strict=True))
    largest = [min(column) if place == Phase.TRANSFER else max(column) for place, column in enumerate(columns)]
    if (
        step_ms is None
        or not all(map(math.isfinite, (step_ms, samples, size, *largest, *(interval_ms or ()))))
        or step_ms <= 0
    ):
        return None
    return Pace(step_ms, tuple(largest), samples, size, interval_ms)


def compare_for_report(run: Run, report: dict[str, Any]) -> dict[str, Any] | None:
    """Return the comparison with earlier runs for a report, or None if no earlier run did the same work."""
    now = _pace(msgspec.convert(report, _Report, strict=False))
    found = None if now is None else difference(now, earlier_paces(run))
    return None if found is None else _reported(run, found)


def _reported(run: Run, found: Difference) -> dict[str, Any]:
    facts = asdict(found) | {
        "phase": found.phase or None,
        "phase_ms": round(found.phase_ms, 4) if found.phase else None,
    }
    numbers = {"step_ms": round(found.step_ms, 4), "slower_by": round(found.slower_by, 4)}
    return facts | numbers | {"text": found.sentence(run.name)}
