"""Compare ddpmon's account of a run with the run's output and its witness's records."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from itertools import pairwise

from field_program import Program
from field_runs import Run

NOT_OF_RANKS = {"cpu_starved", "telemetry_lost"}
"""Kinds of findings that are true of a machine that is too busy; they are reported separately."""
ALARMS = re.compile(r"^\d\d:\d\d:\d\d  (stalled|slow|failed|lost)\b")
LONG_PAUSES = 0.1
"""A finding about pauses is right if the witness saw pauses take more than this share of the time."""
FELT = 1.5
"""The slowed run counts as slowed if its mean step takes at least this many times that of the undisturbed run."""


def output_differences(bare: Run, watched: Run) -> list[str]:
    """Return the lines that only one run printed, - for bare and + for watched. If ranks share a stream, order is
    ignored.
    """
    differences = []
    for name in bare.output.keys() | watched.output.keys():
        lines, others = bare.output.get(name, []), watched.output.get(name, [])
        if lines == others or (name == "all" and Counter(lines) == Counter(others)):
            continue
        missing, extra = Counter(lines) - Counter(others), Counter(others) - Counter(lines)
        differences += [f"{name} - {text}" for text in missing] + [f"{name} + {text}" for text in extra]
        if not missing and not extra:
            differences.append(f"{name}: another order")
    return differences


def gaps_ms(run: Run) -> list[float]:
    """Return the times between two calls of the first optimizer's step, without those in which the script paused."""
    pairs = pairwise(run.stamps[0]) if run.stamps else ()
    return [(after - before) * 1000 for before, after in pairs if not any(before < at < after for at in run.pauses)]


def steps_made(program: Program, run: Run) -> int:
    calls = max((len(times) for times in run.stamps), default=0)
    return program.steps if calls == program.calls else calls


def step_ms(program: Program, run: Run) -> tuple[float, float] | None:
    """Return the median of `gaps_ms` and the mean length of a step; an optimizer may be called twice in a step."""
    gaps = gaps_ms(run)
    counted = steps_made(program, run) - (len(run.stamps[0]) - len(gaps)) if gaps else 0
    return (statistics.median(gaps), sum(gaps) / counted) if counted > 0 else None


def is_slower(slowed_ms: tuple[float, float] | None, usual_ms: tuple[float, float] | None) -> bool:
    """Return whether the slowed run's mean step is clearly longer than that of the undisturbed run."""
    return bool(slowed_ms and usual_ms and slowed_ms[1] >= FELT * usual_ms[1])


def paused_share(run: Run) -> float:
    """Return the share of the time between the first and the last step that gaps with a pause take."""
    if not run.stamps or len(run.stamps[0]) < 2:
        return 0.0
    return 1 - sum(gaps_ms(run)) / (run.stamps[0][-1] - run.stamps[0][0]) / 1000


def false_findings(run: Run) -> list[str]:
    """Return the findings above info of a clean run, and the alarms of --headless while it ran, except long pauses."""
    right = NOT_OF_RANKS | ({"pauses"} if paused_share(run) > LONG_PAUSES else set())
    wrong = [f["text"] for f in run.findings if f["severity"] != "info" and f["kind"] not in right]
    texts = list(wrong)
    alarms = Counter(match[1] for text in run.headless if (match := ALARMS.match(text)))
    if not wrong and "pauses" in right:
        del alarms["slow"]
    texts += [f"--headless said {word} {times} times" for word, times in alarms.items()]
    return texts if run.report else [*texts, "no report"]


def busy(run: Run) -> list[str]:
    return sorted({f["kind"] for f in run.findings if f["severity"] != "info" and f["kind"] in NOT_OF_RANKS})


def named(run: Run, rank: int) -> str:
    """Return "yes" if a finding above info in the report names only this rank, "live" if only --headless did, or
    "NO"."""
    if any(f["severity"] != "info" and f["ranks"] == [rank] for f in run.findings):
        return "yes"
    return "live" if any(re.match(rf"^\S+  !+ rank {rank} is slow", text) for text in run.headless) else "NO"
