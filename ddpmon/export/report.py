"""`ddpmon report`: describes a run's findings and what to do about them, as data and as text for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ddpmon import config, numbers, runs
from ddpmon.analysis.gpu_hours import format_hours
from ddpmon.analysis.kinds import kind_named
from ddpmon.analysis.processes.failures import headline
from ddpmon.analysis.words import MOST_FINDINGS, NO_VALUE, duration, format_count, named_ranks, pause_count
from ddpmon.errors import DdpmonError
from ddpmon.export.width import columns, wrapped
from ddpmon.messages import END_STATES, PHASES, Snapshot
from ddpmon.recording.recorded import report_with_store
from ddpmon.runs import Run
from ddpmon.source import snapshot_now
from ddpmon.store.store import Store

MOST_RANKS = 32
"""Largest number of ranks in the rank table. If there are more ranks, only the worst and the median are shown."""
WORST_RANKS = 16
REPORT_COLUMNS = ("rank", "own ms", "excess", "data", "fwd", "bwd", "opt", "other", "wait", "transf", "crit", "loss")
_WIDTHS = (5, 7, 10, 6, 6, 6, 6, 7, 7, 7, 5, 8)


def build(run: Run) -> dict[str, Any]:
    """Return the report of an ended or running run, schema 1. Raise RecordingError if nothing is recorded.

    The report of a running run is made from the hub's current snapshot, if the hub answers.
    """
    return with_source(run)[0]


def with_source(run: Run) -> tuple[dict[str, Any], Snapshot, Store]:
    """Return the report, and the snapshot and the store that it was made from."""
    live = _hub_snapshot(run)
    if live is not None and live.state in END_STATES:  # The run has just ended, so its recording is complete.
        run, live = runs.load(run.id), None
    built, shot, store = report_with_store(run, live)
    settings = config.current()
    price = settings.get("price.gpu_hour")
    built["cost"] |= {"price_per_hour": price, "currency": settings.get("price.currency") if price else None}
    return built, shot, store


def _hub_snapshot(run: Run) -> Snapshot | None:
    """Return the current snapshot of a running run's hub; None if no hub answers."""
    if run.state() != "running":
        return None
    try:
        return snapshot_now(run)
    except DdpmonError:  # The report then shows how old the recording is.
        return None


def text(report: dict[str, Any], width: int = 80) -> str:
    """Return the report as text: verdict, why, next, then the numbers. No line is longer than `width` columns."""
    lines = wrapped(title(report["run"]), width)
    for word, sentence in sentences(report):
        lines += wrapped(sentence, width, f"{word:<9}", " " * 9)
    if report["steps"]["window"]:
        lines.append("")
        for fact in facts(report):
            lines += wrapped(fact, width)
        lines += ["", *_table(report["ranks"], width)]
        for sentence in earlier(report):
            lines += wrapped(sentence, width)
    return "\n".join(lines)


def title(run: dict[str, Any]) -> str:
    """Return the run's name, id, state and size as a heading."""
    code = "" if run["exit_code"] is None else f", exit code {run['exit_code']}"
    ranks = format_count(run["world_size"], "rank")
    restarts = f", {format_count(run['restarts'], 'restart')}" if run.get("restarts") else ""
    state = run.get("live_state") or run["state"]
    return f"{run['name']} ({run['id']}): {state}{code}, {ranks}{restarts}"


def sentences(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the labelled sentences at the top: the verdict ("Verdict"), reasons ("Why"), and advice ("Next").

    If no hub answered, the age of the data comes first ("Stale"). Findings that do not explain the verdict come last
    ("Also"), each with its own advice.
    """
    findings = report["findings"]
    causes = [finding for place, finding in enumerate(findings) if place in report["verdict_findings"]]
    causes += [one for one in findings if kind_named(one["kind"]).explains == "failed" and one not in causes]
    reasons = [one for one in findings if one not in causes and any(_explains(one, cause) for cause in causes)]
    acts = [*causes, *reasons]
    others = [finding for finding in findings if finding not in acts]
    advice = list(dict.fromkeys(finding["advice"] for finding in acts if finding.get("advice")))
    stale_s = report["run"].get("stale_s")
    labelled = (
        [] if stale_s is None else [("Stale", f"the hub does not answer; this is the state {duration(stale_s)} ago")]
    )
    labelled += [("Verdict", report["verdict"] or "none yet")]
    earlier_runs = report.get("earlier_runs")
    labelled += [("Earlier", earlier_runs["text"])] if earlier_runs and earlier_runs["slower_by"] else []
    labelled += [("Restart", attempt) for attempt in _latest(report["run"].get("attempts", []))]
    labelled += [("Why", sentence) for sentence in _first([finding["text"] for finding in reasons], "finding")]
    labelled += [("Next", sentence) for sentence in _first(advice, "piece of advice", "pieces of advice")]
    next_steps: dict[str, str] = {}
    for finding in others:
        if (step := finding["advice"]) not in {None, *advice, *next_steps.values()}:
            next_steps[finding["text"]] = step
    for sentence in _first([finding["text"] for finding in others], "finding"):
        labelled += [("Also", sentence), *([("Next", step)] if (step := next_steps.get(sentence)) else [])]
    return labelled


def _explains(finding: dict[str, Any], cause: dict[str, Any]) -> bool:
    """Return whether a finding is about the same ranks and phase as the verdict's cause, and not only a hint.

    Nothing that slows ranks explains why a rank fails or hangs.
    """
    if kind_named(cause["kind"]).explains or finding["severity"] == "info" or not finding["ranks"]:
        return False
    return finding["ranks"] == cause["ranks"] and finding["phase"] in {None, cause["phase"]}


def _latest(attempts: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on the end of each earlier attempt. If there are too many attempts, the first ones are left
    out.
    """
    hidden = len(attempts) - MOST_FINDINGS
    ended = format_count(max(0, hidden), "earlier attempt")
    lines = [f"{ended} ended before these; ddpmon report --format json lists all attempts"] if hidden > 0 else []
    return [*lines, *map(_attempt, attempts[-MOST_FINDINGS:])]


def _attempt(attempt: dict[str, Any]) -> str:
    after = format_count(attempt["steps"], "step")
    if attempt["cause"] is None:
        return f"attempt {attempt['number']} ended after {after} for an unknown reason"
    how = headline(attempt["ranks"], attempt["cause"], attempt["world_size"])
    code = f", {attempt['exit']}" if attempt["exit"] else ""
    return f"attempt {attempt['number']} ended after {after}: {how}{code}"


def _first(sentences: list[str], one: str, many: str | None = None) -> list[str]:
    hidden = len(sentences) - MOST_FINDINGS
    if hidden <= 0:
        return sentences
    noun = one if hidden == 1 else many or f"{one}s"
    return [*sentences[:MOST_FINDINGS], f"and {hidden:,} more {noun}; ddpmon report --format json lists all of them"]


def facts(report: dict[str, Any]) -> list[str]:
    """Return lines with numbers about all ranks together."""
    steps = report["steps"]
    step = steps["step_ms"]
    rate = steps["samples_per_s"]
    counted_steps = f"steps {steps['count']:,}{_of_how_many(steps)}"
    return [
        *([report["run"]["measured"]] if report["run"].get("measured") else []),
        f"{counted_steps}, {_means_over(steps['window'])}; lost {steps['records_lost']:,}",
        (
            f"step ms mean {_ms(step['mean'])}  p50 {_ms(step['p50'])}  p95 {_ms(step['p95'])}  max {_ms(step['max'])}"
            f"  samples/s {NO_VALUE if rate is None else f'{rate:,.1f}' if rate < 1000 else f'{rate:,.0f}'}"
        ),
        *_losses(steps.get("losses_of") or []),
        *_blocked(report),
        *_clocks(report.get("clocks")),
        *_since_start(report.get("efficiency_since_start")),
        *_time(report.get("time"), steps.get("accumulation") or 1),
        *_cost(report),
    ]


def _cost(report: dict[str, Any]) -> list[str]:
    """Return a line with the hours used, the hours lost to findings, and the number of ranks that could have done the
    work.
    """
    cost, size = report.get("cost"), report["run"]["world_size"]
    if not cost:
        return []
    lost = f"findings lost {hours(report, cost['lost_hours'])}" if cost["lost_hours"] else ""
    work = cost["works_as_ranks"]
    work = f"{size:,} ranks do the work of {work:,.1f}" if work is not None and size > 1 else ""
    return ["; ".join(filter(None, [f"used {hours(report, cost['hours'])}", lost, work]))]


def hours(report: dict[str, Any], amount: float) -> str:
    """Return GPU hours or rank hours of a report as text, with their price if it has one."""
    cost = report["cost"]
    return format_hours(amount, cost["unit"], cost.get("price_per_hour"), cost.get("currency") or "")


def _time(time: dict[str, Any] | None, accumulation: int) -> list[str]:
    """Return lines on how the run spent its time: one on training, pauses and start if there were pauses, and one on
    accumulated batches if there were any.
    """
    notes = [f"each step accumulates the gradients of {accumulation} batches"] if accumulation > 1 else []
    if not time or not time["pauses"]:
        return notes
    pauses = "".join(
        f", {kind} {duration(pause['seconds'])}"
        f" ({_share(pause['share'])} of the run, {pause_count(kind, pause['count'])})"
        for kind, pause in sorted(time["pauses"].items(), key=lambda item: -item[1]["seconds"])
    )
    return [f"time: training {duration(time['training_s'])}{pauses}, start {duration(time['start_s'])}", *notes]


def _losses(models: Sequence[str]) -> list[str]:
    """Return a line with the models whose losses are summed, if a step updates several models; else []."""
    return (
        [f"the loss is the sum of the losses of {len(models)} models ({', '.join(models)})"] if len(models) > 1 else []
    )


def _of_how_many(steps: dict[str, Any]) -> str:
    """Return the known total of steps and epochs as text, such as " of 5,000 (epoch 2 of 3)"."""
    total, epoch, epochs = (steps.get(name) for name in ("total", "epoch", "epochs"))
    of_epochs = f" of {epochs:,}" if epochs else ""
    return (f" of {total:,}" if total else "") + (f" (epoch {epoch:,}{of_epochs})" if epoch else "")


def _blocked(report: dict[str, Any]) -> list[str]:
    """Return lines on the time blocked in all-reduce or collectives, and on efficiency; [] if neither was measured."""
    reduce, collectives = report["all_reduce"], report.get("collectives")
    if "wait" in report["run"].get("unmeasured", ()):
        return []
    blocked = (
        f"all-reduce wait {_ms(reduce['wait_ms'])} ms  transfer {_ms(reduce['transfer_ms'])} ms"
        f"  exposed {_share(reduce['exposed_share'])} of the step"
    )
    if collectives:
        blocked = (
            f"collectives wait {_ms(collectives['wait_ms'])} ms  transfer {_ms(collectives['transfer_ms'])} ms"
            f"  together {_share(collectives['share'])} of the step"
        )
    return [blocked, _efficiency(report["efficiency"])]


def _clocks(clocks: list[dict[str, Any]] | None) -> list[str]:
    """Return a line on how well the hosts' clocks agree, which limits the precision of waits and transfers."""
    if not clocks:
        return []
    within = max(clock["within_ms"] for clock in clocks)
    sure = [clock["surely_ms"] for clock in clocks if clock["surely_ms"] is not None]
    surely = f" (surely ±{_ms(max(sure))} ms)" if len(sure) == len(clocks) else ""
    return [f"clocks of {len(clocks) + 1} hosts agree within ±{_ms(within)} ms{surely}"]


def _efficiency(tree: dict[str, Any]) -> str:
    return (
        f"efficiency {_share(tree['parallel'])} = load balance {_share(tree['load_balance'])}"
        f" x communication {_share(tree['communication'])}"
    )


def _since_start(tree: dict[str, Any] | None) -> list[str]:
    """Return a line with the efficiency over all steps of the run, if the report's other means cover fewer steps; else
    [].
    """
    return [f"all steps, {tree['window'][0]:,} to {tree['window'][1]:,}: {_efficiency(tree)}"] if tree else []


def rows(ranks: list[dict[str, Any]]) -> list[tuple[tuple[str, ...], dict[str, Any] | None]]:
    """Return the rows of the rank table, most own time first: (cells, exit of the rank if it ended badly).

    Ranks that ended badly come first. If there are more than MOST_RANKS ranks, only the worst and the median ("med")
    remain.
    """
    ordered = sorted(ranks, key=lambda rank: (not _ended_badly(rank), -(rank["own_ms"] or 0), rank["rank"]))
    shown = ordered if len(ordered) <= MOST_RANKS else ordered[:WORST_RANKS]
    cells = [(_row(rank), rank["exit"] if _ended_badly(rank) else None) for rank in shown]
    if len(ordered) > len(shown):
        cells.append((_row(_median_rank(ranks)), None))
    return cells


def earlier(report: dict[str, Any]) -> list[str]:
    """Return a line for each group of ranks whose means cover earlier steps than those of the other ranks."""
    window = report["steps"]["window"]
    groups: dict[tuple[int, int], list[int]] = {}
    for rank in report["ranks"]:
        if (own := rank.get("window")) and own != window:
            groups.setdefault((own[0], own[1]), []).append(rank["rank"])
    size = report["run"]["world_size"]
    lines = []
    for window, ranks in sorted(groups.items()):
        lines.append(
            f"{named_ranks(ranks, size)}: {_means_over(window)}, the last steps that the other ranks also have"
        )
    return lines


def _means_over(window: Sequence[int]) -> str:
    first, last = window
    return f"means over {first:,} to {last:,}" if first < last else f"values of step {first:,}"


def folded(ranks: list[dict[str, Any]]) -> str:
    """Return a line on the ranks that the rank table leaves out; "" if the table has all ranks."""
    if len(ranks) <= MOST_RANKS:
        return ""
    return f"and {len(ranks) - WORST_RANKS:,} more ranks; med is the median of all {len(ranks):,} ranks"


def how_it_ended(how: dict[str, Any]) -> str:
    """Return a rank's exit code, signal and error as text."""
    words = [f"exit {how['code']}" if how["code"] is not None else "", how["signal"] or "", how["error"] or ""]
    return ", ".join(word for word in words if word)


def _median_rank(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    values = {
        name: _median([rank[name] for rank in ranks]) for name in ("own_ms", "over_median", "critical_share", "loss")
    }
    phases = {name: _median([rank["phases_ms"][name] for rank in ranks]) for name in PHASES}
    return {"rank": "med", "phases_ms": phases, **values}


def _median(values: list[float | None]) -> float | None:
    return statistics.median(measured) if (measured := [value for value in values if value is not None]) else None


def _row(rank: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(rank["rank"]),
        _ms(rank["own_ms"]),
        numbers.over(rank["over_median"]),
        *(_ms(rank["phases_ms"][name]) for name in PHASES),
        _share(rank["critical_share"]),
        _loss(rank["loss"]),
    )


def _table(ranks: list[dict[str, Any]], width: int) -> list[str]:
    lines = [_cells(REPORT_COLUMNS, width)]
    for row, how in rows(ranks):
        lines.append(_cells(row, width))
        if how:
            lines += wrapped(how_it_ended(how), width, " " * 6, " " * 6)
    if more := folded(ranks):
        lines += wrapped(more, width)
    return lines


def _ended_badly(rank: dict[str, Any]) -> bool:
    how = rank["exit"]
    return bool(how) and bool(how["code"] or how["signal"] or how["error"])


def _cells(row: tuple[str, ...], width: int) -> str:
    """Return a line with as many cells as fit."""
    line = ""
    for cell, room in zip(row, _WIDTHS, strict=True):
        grown = line + cell.rjust(room)
        if columns(grown) > width:
            break
        line = grown
    return line


def _ms(value: float | None) -> str:
    """Format milliseconds in at most five characters: 1.42, 53.0, 12345, 2e+06."""
    if value is None:
        return NO_VALUE
    size = abs(value)
    if size >= 99_999.5:
        return f"{value:.0e}"
    return f"{value + 0.0:.{2 if size < 9.995 else 1 if size < 999.95 else 0}f}"


def _loss(value: float | None) -> str:
    """Format a loss in at most seven characters."""
    if value is None:
        return NO_VALUE
    return next(
        (formatted for form in (".4g", ".3g", ".1e") if len(formatted := f"{value:{form}}") <= 7), f"{value:.0e}"
    )


def _share(value: float | None) -> str:
    if value is None:
        return NO_VALUE
    return f"{value:.0%}" if abs(value) < 9.995 else ">999%"
