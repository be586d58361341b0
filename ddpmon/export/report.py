"""`ddpmon report`: what happened in a run and what to do about it, as data and as text for a terminal."""

from __future__ import annotations

import textwrap
from typing import Any

from ddpmon.hub.recording import recorded_report
from ddpmon.runs import Run

MOST_RANKS = 32
_COLUMNS = ("rank", "own ms", "vs med", "data", "fwd", "bwd", "opt", "other", "wait", "transf", "crit", "loss")
_WIDTHS = (5, 8, 7, 7, 7, 7, 5, 6, 7, 7, 5, 9)


def build(run: Run) -> dict[str, Any]:
    """The report of a run that ended or still runs, schema 1. RecordingError if there is nothing to tell."""
    return recorded_report(run)


def text(report: dict[str, Any], width: int = 80) -> str:
    """The report for people: verdict, why, next, then the numbers. No line is longer than `width`."""
    lines = _head(report["run"], width)
    lines += _paragraph("Verdict", report["verdict"], width)
    findings = report["findings"]
    for finding in findings:
        if finding["kind"] != "rank_failed" and finding["text"] not in report["verdict"]:
            lines += _paragraph("Why", finding["text"], width)
    for finding in findings:
        if finding.get("advice"):
            lines += _paragraph("Next", finding["advice"], width)
    if report["steps"]["window"]:
        lines += ["", *_numbers(report, width)]
        lines += ["", *_table(report["ranks"], width)]
    return "\n".join(lines)


def _head(run: dict[str, Any], width: int) -> list[str]:
    code = "" if run["exit_code"] is None else f", exit code {run['exit_code']}"
    ranks = f"{run['world_size']} rank{'s' if run['world_size'] != 1 else ''}"
    return textwrap.wrap(f"{run['name']} ({run['id']}): {run['state']}{code}, {ranks}", width)


def _paragraph(word: str, sentence: str, width: int) -> list[str]:
    return textwrap.wrap(sentence, width, initial_indent=f"{word:<9}", subsequent_indent=" " * 9)


def _numbers(report: dict[str, Any], width: int) -> list[str]:
    steps, efficiency, reduce = report["steps"], report["efficiency"], report["all_reduce"]
    window = f", means over {steps['window'][0]:,} to {steps['window'][1]:,}"
    step = steps["step_ms"]
    facts = [
        f"steps {steps['count']:,}{window}; lost {steps['records_lost']:,}",
        (
            f"step ms mean {_ms(step['mean'])}  p50 {_ms(step['p50'])}  p95 {_ms(step['p95'])}  max {_ms(step['max'])}"
            f"  samples/s {_ms(steps['samples_per_s'])}"
        ),
        (
            f"all-reduce wait {_ms(reduce['wait_ms'])} ms  transfer {_ms(reduce['transfer_ms'])} ms"
            f"  exposed {_share(reduce['exposed_share'])} of the step"
        ),
        (
            f"efficiency {_share(efficiency['parallel'])} = load balance {_share(efficiency['load_balance'])}"
            f" x communication {_share(efficiency['communication'])}"
        ),
    ]
    return [line for fact in facts for line in textwrap.wrap(fact, width)]


def _table(ranks: list[dict[str, Any]], width: int) -> list[str]:
    """Ranks with the most own time first; those that ended badly are listed in any case."""
    ordered = sorted(ranks, key=lambda rank: (not _ended_badly(rank), -(rank["own_ms"] or 0), rank["rank"]))
    shown = ordered[:MOST_RANKS]
    own = sorted(rank["own_ms"] for rank in ranks if rank["own_ms"] is not None)
    median = (own[(len(own) - 1) // 2] + own[len(own) // 2]) / 2 if own else None
    lines = [_cells(_COLUMNS, width)]
    for rank in shown:
        phases = rank["phases_ms"]
        over = rank["own_ms"] - median if rank["own_ms"] is not None and median is not None else None
        values = [phases[name] for name in ("data", "forward", "backward", "optimizer", "other", "wait", "transfer")]
        loss = rank["loss"]
        row = (
            str(rank["rank"]),
            _ms(rank["own_ms"]),
            "–" if over is None else f"{over:+.1f}",
            *map(_ms, values),
            _share(rank["critical_share"]),
            "–" if loss is None else f"{loss:.4g}",
        )
        lines.append(_cells(row, width))
        if _ended_badly(rank):
            lines.append(_how_it_ended(rank["exit"], width))
    if len(ordered) > len(shown):
        lines.append(f"and {len(ordered) - len(shown)} further ranks")
    return lines


def _how_it_ended(how: dict[str, Any], width: int) -> str:
    words = [f"exit {how['code']}" if how["code"] is not None else "", how["signal"] or "", how["error"] or ""]
    line = " " * 6 + ", ".join(word for word in words if word)
    return line if len(line) <= width else line[: width - 1] + "…"


def _ended_badly(rank: dict[str, Any]) -> bool:
    how = rank["exit"]
    return bool(how) and (how["code"] or how["signal"] or how["error"]) not in {None, 0}


def _cells(row: tuple[str, ...], width: int) -> str:
    """Columns from the left, as many as fit."""
    line = ""
    for cell, columns in zip(row, _WIDTHS, strict=True):
        grown = line + cell.rjust(columns)
        if len(grown) > width:
            break
        line = grown
    return line


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
