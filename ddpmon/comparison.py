"""Compares two runs by their recordings: as plain values, and as the cells and sentences that users read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ddpmon.analysis.compare import (
    COMPARED_LOSS_STEPS,
    EXCLUDED_FIRST_STEPS,
    MIN_COMPARED_STEPS,
    Comparison,
    Side,
    compare_runs,
)
from ddpmon.analysis.difference import notes, sentence
from ddpmon.analysis.report import finding_for_report, json_number
from ddpmon.analysis.statistics.resampling import Ratio
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.words import MOST_FINDINGS, NO_VALUE, format_count
from ddpmon.errors import UsageError
from ddpmon.messages import PHASES, Finding
from ddpmon.recording.recorded import recorded_store
from ddpmon.runs import Run

COMPARISON_SCHEMA = 1
INTERVAL_NOTE = (
    "The 95% interval covers chance within each run (block bootstrap over its steps), not how much two runs of the same"
    " script differ."
)


def build(a: Run, b: Run) -> dict[str, Any]:
    """Compare run B with run A, and return the result in schema 1.

    Raises:
        UsageError: A run has too few steps.
        RecordingError: A recording cannot be read.

    """
    (world_a, findings_a), (world_b, findings_b) = _read(a), _read(b)
    return diff(a, b, compare_runs(world_a, world_b, findings_a, findings_b))


def _read(run: Run) -> tuple[World, list[Finding]]:
    store = recorded_store(run)
    steps, needed = 0 if store.world is None else len(store.world), EXCLUDED_FIRST_STEPS + MIN_COMPARED_STEPS
    if store.world is None or steps < needed:
        raise UsageError(f"{run.name} ({run.id}) has {steps} recorded steps; a comparison needs {needed}")
    return store.world, store.findings


def diff(a: Run, b: Run, comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values. A value that was not measured is None."""
    losses = comparison.losses
    return {
        "schema": COMPARISON_SCHEMA,
        "verdict": sentence(comparison),
        "outcome": comparison.outcome,
        "speed": {
            "unit": comparison.unit,
            "measure": "mean" if comparison.by_mean else "median",
            "median": _ratio(comparison.median),
            "mean": _ratio(comparison.mean),
        },
        "slower_by": round(comparison.slower_by, 4),
        "a": _side(a, comparison.a),
        "b": _side(b, comparison.b),
        "loss": None
        if losses is None
        else {
            "same": losses.same,
            "step_a": losses.step_a,
            "step_b": losses.step_b,
            "a": _loss_number(losses.a),
            "b": _loss_number(losses.b),
            "b_is": losses.b_is,
        },
        "findings": {
            "gone": [finding_for_report(finding) for finding in comparison.gone],
            "new": [finding_for_report(finding) for finding in comparison.new],
            "kept": [{"a": finding_for_report(was), "b": finding_for_report(now)} for was, now in comparison.kept],
        },
        "notes": [*_notes_on_commands(a, b), *notes(comparison)],
    }


def _notes_on_commands(a: Run, b: Run) -> list[str]:
    """Return notes that the two runs are one run, or that their scripts or arguments differ."""
    if a.id == b.id:
        return ["A and B are the same run"]
    lines = [] if a.script == b.script else [f"A ran {a.script}, and B ran {b.script}"]
    options = [_options(run.script_args) for run in (a, b)]
    only = [" ".join(one for one in here if one not in there) for here, there in (options, options[::-1])]
    if any(only):
        has = [f"{name} has {text or 'none of these'}" for name, text in zip("AB", only, strict=True)]
        lines.append(f"the arguments differ: {'; '.join(has)}")
    return lines


def _options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a script, each option with its values: ["--lr 0.1", "--amp"]."""
    options: list[str] = []
    for word in arguments:
        if options and not word.startswith("-"):
            options[-1] += f" {word}"
        else:
            options.append(word)
    return options


def _side(run: Run, side: Side) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state(),
        "world_size": side.ranks,
        "steps": {"compared": side.steps, "window": list(side.window), "left_out": side.left_out},
        "step_ms": {"p50": json_number(side.step_ms_p50), "mean": json_number(side.step_ms_mean)},
        **{f"{unit}_per_step": json_number(side.work[unit] or None) for unit in ("samples", "tokens")},
        **{f"{unit}_per_s": json_number(side.per_s(unit)) for unit in ("samples", "tokens")},
        "phases_ms": {name: json_number(ms) for name, ms in zip(PHASES, side.phases_ms.tolist(), strict=True)},
        "critical_path_ms": {name: json_number(ms) for name, ms in zip(PHASES, side.path_ms.tolist(), strict=True)},
        "critical": {"rank": side.critical_rank, "share": json_number(side.critical_share)},
    }


def _ratio(ratio: Ratio) -> dict[str, float | None]:
    return {"value": json_number(ratio.value), "low": json_number(ratio.low), "high": json_number(ratio.high)}


def _loss_number(value: float) -> float | None:
    """Return a loss with six significant digits, however small it is."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def title(side: dict[str, Any]) -> str:
    """Return the run's name, its state, and which of its steps were compared."""
    steps = side["steps"]
    ranks = format_count(side["world_size"], "rank")
    window = f"{format_count(steps['compared'], 'step')} compared, {steps['window'][0]:,} to {steps['window'][1]:,}"
    return f"{side['name']} ({side['id']}): {side['state']}, {ranks}, {window}"


def numbers(made: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return speed, work and loss as cells: name, A, B, B - A."""
    a, b = made["a"], made["b"]
    rows: list[tuple[str, float | None, float | None, Callable[..., str]]] = [
        ("step ms, median", a["step_ms"]["p50"], b["step_ms"]["p50"], _quantity),
        ("step ms, mean", a["step_ms"]["mean"], b["step_ms"]["mean"], _quantity),
        ("samples/s", a["samples_per_s"], b["samples_per_s"], _quantity),
        ("tokens/s", a["tokens_per_s"], b["tokens_per_s"], _quantity),
        ("samples a step", a["samples_per_step"], b["samples_per_step"], _count),
        ("tokens a step", a["tokens_per_step"], b["tokens_per_step"], _count),
    ]
    loss = made["loss"]
    if loss is not None:
        at = "same samples" if loss["same"] == "samples" else f"step {loss['step_a']:,}"
        rows.append((f"loss at {at}", loss["a"], loss["b"], _loss))
    return [_row(name, a, b, formatter) for name, a, b, formatter in rows if a is not None or b is not None]


def phases(made: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of each phase, as the mean over ranks and then of the critical rank. They sum to the step's
    length.
    """
    a, b = made["a"], made["b"]
    return [
        _row(name, a["phases_ms"][name], b["phases_ms"][name], _quantity)
        + _row(name, a["critical_path_ms"][name], b["critical_path_ms"][name], _quantity)[1:]
        for name in PHASES
    ]


def _row(name: str, a: float | None, b: float | None, formatter: Callable[..., str]) -> tuple[str, ...]:
    return (name, formatter(a), formatter(b), formatter(b - a if a is not None and b is not None else None, "+"))


def _quantity(value: float | None, sign: str = "") -> str:
    if value is None:
        return NO_VALUE
    size = abs(value)
    if size >= 1e7:
        return f"{value:{sign}.2e}"
    digits = 2 if size < 9.995 else 1 if size < 999.95 else 0
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}"


def _count(value: float | None, sign: str = "") -> str:
    """Return a number as text; a whole number has no decimals."""
    whole = value is not None and value.is_integer() and abs(value) < 1e7
    return f"{value:{sign},.0f}" if whole else _quantity(value, sign)


def _loss(value: float | None, sign: str = "") -> str:
    return NO_VALUE if value is None else f"{value:{sign}.4g}"


def sentences(made: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (label, sentence) pairs that follow the numbers: what the loss is the mean of ("Loss"), the critical rank
    ("Who"), findings ("Gone", …), notes ("Note").
    """
    critical_ranks = []
    for name in ("a", "b"):
        critical = made[name]["critical"]
        critical_ranks.append(
            f"nobody waited in {name.upper()}"
            if critical["rank"] is None
            else f"rank {critical['rank']} is critical in {critical['share']:.0%} of {name.upper()}'s steps"
        )
    labelled = []
    if (loss := made["loss"]) is not None:
        steps = min(COMPARED_LOSS_STEPS, loss["step_a"], loss["step_b"])
        labelled.append(("Loss", f"each loss is the mean of the last {steps} steps and of all ranks"))
    labelled.append(("Who", ", ".join(critical_ranks)))
    findings = made["findings"]
    for word, texts in (
        ("Gone", [finding["text"] for finding in findings["gone"]]),
        ("New", [finding["text"] for finding in findings["new"]]),
        ("Still", [f"{pair['b']['text']}{_costs(pair)}" for pair in findings["kept"]]),
    ):
        labelled += [(word, sentence) for sentence in texts[:MOST_FINDINGS]]
        if len(texts) > MOST_FINDINGS:
            labelled.append((word, f"and {len(texts) - MOST_FINDINGS:,} more: --format json has all"))
    return labelled + [("Note", sentence) for sentence in made["notes"]]


def _costs(pair: dict[str, Any]) -> str:
    """Return the cost of a common finding in each run, as text; "" if neither run measured it."""
    costs = [pair[name]["cost_ms"] for name in ("a", "b")]
    if all(cost is None for cost in costs):
        return ""
    texts = ["not measured" if cost is None else f"{cost:.1f} ms a step" for cost in costs]
    return f" (A: {texts[0]}, B: {texts[1]})"
